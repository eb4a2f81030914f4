// The parts of an HTTP request's head that reach the servers.
#ifndef TLM_CLIENT_OPENAI_ROUTES_CALLER_H_
#define TLM_CLIENT_OPENAI_ROUTES_CALLER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/openai/http/exchange.h"

namespace tlm::openai {

struct Caller {
  // `x-request-id`, or a random one: names the request in the servers' logs and in the answer.
  std::string request_id;
  // For CallOptions::metadata: `authorization`, `traceparent` and `tracestate`.
  std::vector<std::pair<std::string, std::string>> metadata;
};

// `own_key` is sent for callers that send no key; empty = none. `passes_keys`: whether the keys of
// callers may travel to the servers. UNAUTHENTICATED for an Authorization header of another scheme
// than Bearer or with unprintable characters, INVALID_ARGUMENT for such an x-request-id or one of
// more than 128 bytes.
absl::StatusOr<Caller> CallerOf(const HttpRequest& request, const std::string& own_key,
                                bool passes_keys);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_CALLER_H_
