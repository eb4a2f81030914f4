// Which of a client's targets gets a Generate call.
#ifndef TLM_CLIENT_CPP_BALANCE_H_
#define TLM_CLIENT_CPP_BALANCE_H_

#include <optional>
#include <string_view>

namespace tlm::client {

enum class Balance {
  // One after the other, whatever is asked.
  kRoundRobin,
  // Requests that begin alike go to the same target, whose prefix cache then has their beginning:
  // a long prompt that many ask about, or a conversation turn after turn. By rendezvous hashing of
  // what a request begins with and of the targets' names, as they were given to Connect: every
  // client that knows the same targets, in whatever order, chooses alike; a target more or less
  // moves only the share of requests that it gets or had. A target that runs max(4, 5/4 of the
  // average) of this client's Generate calls passes the next one on to the second in that order,
  // and so forth.
  //
  // A request begins with CallOptions::affinity_key if that is not empty; else with
  //
  //   prompt             its first 256 bytes
  //   prompt_token_ids   the first 64 of them
  //   chat               the messages up to the first that is neither "system" nor "developer",
  //                      256 bytes of each: all turns of a conversation go to one target, while
  //                      conversations that share a system message are spread
  //
  // and with its cache_salt. What bypasses the prefix cache goes round robin.
  kPrefixAffinity,
};

// "round_robin" or "prefix_affinity"; nothing for other names.
std::optional<Balance> BalanceFromName(std::string_view name);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_BALANCE_H_
