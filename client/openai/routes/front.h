// What the routes share.
#ifndef TLM_CLIENT_OPENAI_ROUTES_FRONT_H_
#define TLM_CLIENT_OPENAI_ROUTES_FRONT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/openai/http/exchange.h"
#include "client/openai/routes/backend.h"
#include "client/openai/routes/call_pool.h"
#include "client/openai/routes/caller.h"
#include "client/openai/routes/front_metrics.h"

namespace tlm::openai {

struct FrontOptions {
  MappingOptions mapping;
  // Deadline of a call to a server.
  absl::Duration timeout = absl::InfiniteDuration();
  // The key for callers that send none; empty = none.
  std::string own_key;
  // Whether the keys of callers may travel to the servers unencrypted.
  bool allow_plaintext_keys = false;
  bool encrypted = false;  // the connections to the servers
  size_t max_calls = 512;
  size_t max_queued_calls = 1024;
};

// Thread-safe.
struct Front {
  Front(FrontOptions front_options, std::vector<std::unique_ptr<Backend>> models, int64_t started)
      : options(std::move(front_options)),
        backends(std::move(models)),
        started_at(started),
        calls(options.max_calls, options.max_queued_calls),
        queries(kQueryThreads, kMaxQueuedQueries) {}

  // Threads for calls that no server queues: health, models.
  static constexpr size_t kQueryThreads = 4;
  static constexpr size_t kMaxQueuedQueries = 256;

  const FrontOptions options;
  const std::vector<std::unique_ptr<Backend>> backends;
  const int64_t started_at;  // seconds since 1970
  FrontMetrics metrics;
  // Destroyed first: their tasks use the rest.
  CallPool calls;
  CallPool queries;
};

// A request on its way: the exchange with its route and arrival, and the head of the caller.
struct Incoming {
  std::shared_ptr<Exchange> exchange;
  std::string route;  // for metrics
  absl::Time arrived;
  Caller caller;

  // Returns options for calls to the backend: metadata, timeout, and the exchange's token.
  client::CallOptions Options(const Front& front) const;
};

// Answer, and count the request.
void RespondJson(Front* front, const Incoming& incoming, const Json& body);
void RespondText(Front* front, const Incoming& incoming, int status, std::string content_type,
                 std::string body);
void RespondError(Front* front, const Incoming& incoming, const absl::Status& status);

// Returns the head of an answer with the request's id.
ResponseHead HeadFor(const Incoming& incoming, int status, std::string content_type);

// Returns the backend that serves `model`, which may be empty if there is one. NOT_FOUND for an
// unknown name, INVALID_ARGUMENT if a name is missing, the errors of Backend::Traits.
struct Chosen {
  Backend* backend;
  ModelTraits traits;
};
absl::StatusOr<Chosen> ChooseBackend(Front* front, const std::string& model,
                                     const client::CallOptions& options);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_ROUTES_FRONT_H_
