// The ways in which a client distributes Generate calls over its targets.
#ifndef TLM_CLIENT_CPP_BALANCE_H_
#define TLM_CLIENT_CPP_BALANCE_H_

#include <optional>
#include <string_view>

namespace tlm::client {

enum class Balance {
  // Each call goes to the next target.
  kRoundRobin,
  // Requests with a common prefix go to the same target, whose prefix cache then holds it: a long
  // prompt shared by many requests, or the turns of a conversation. The target is chosen by
  // rendezvous hashing of the prefix and of the targets' names as given to Connect: clients with
  // the same targets, in any order, choose alike; adding or removing a target moves only its own
  // share of the requests. A target with max(4, 5/4 of the average) of this client's Generate calls
  // passes further ones on to the second target in this order, and so forth.
  //
  // The prefix is CallOptions::affinity_key if it is not empty; otherwise
  //
  //   prompt             its first 256 bytes
  //   prompt_token_ids   the first 64 of them
  //   chat               the messages up to the first that is neither "system" nor "developer",
  //                      256 bytes of each: the turns of a conversation go to one target, while
  //                      conversations that share a system message are distributed
  //
  // together with its cache_salt. Requests that bypass the prefix cache go round robin.
  kPrefixAffinity,
};

// Knows "round_robin" and "prefix_affinity"; nullopt for other names.
std::optional<Balance> BalanceFromName(std::string_view name);

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_BALANCE_H_
