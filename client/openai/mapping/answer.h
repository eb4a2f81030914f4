// Converts the events of Generate calls to the answer of a route: chunks of a stream, or one body.
#ifndef TLM_CLIENT_OPENAI_MAPPING_ANSWER_H_
#define TLM_CLIENT_OPENAI_MAPPING_ANSWER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/openai/mapping/api_error.h"
#include "client/openai/mapping/json_body.h"
#include "client/openai/mapping/request.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::openai {

// Returns the bytes of a token: events have only the ids of alternatives. Must be thread-safe.
using TokenBytes = std::function<std::string(uint32_t id)>;

// What an answer says of itself.
struct AnswerHead {
  std::string id;       // of the request, without "chatcmpl-" and the like
  std::string model;    // as requested
  int64_t created = 0;  // seconds since 1970
};

// Sums over calls.
struct TokenCounts {
  uint64_t prompt = 0;
  uint64_t cached = 0;
  uint64_t completion = 0;
  uint64_t reasoning = 0;
};

// The answer of one request. Its calls may run at the same time, each with its events in order.
// Thread-compatible: the caller locks.
class Answer {
 public:
  virtual ~Answer() = default;

  // Takes the next event of the call with this index in ApiRequest::calls. Appends server-sent
  // events to *stream if the request asked for a stream. INTERNAL for events that contradict each
  // other.
  virtual absl::Status Add(size_t call, v1::GenerateResponse event, std::string* stream) = 0;

  // Call one of these after the last event of all calls: the last server-sent events, or the body.
  virtual std::string EndOfStream() = 0;
  virtual std::string Body() = 0;

  // Returns the server-sent events that end a stream with an error.
  virtual std::string ErrorInStream(const ApiError& error) const;

  // Returns the sums of the calls that have ended.
  virtual const TokenCounts& counts() const = 0;
};

// `request` is copied in parts; its calls are not used.
std::unique_ptr<Answer> MakeChatAnswer(const ApiRequest& request, const AnswerHead& head,
                                       TokenBytes token_bytes);
std::unique_ptr<Answer> MakeCompletionAnswer(const ApiRequest& request, const AnswerHead& head,
                                             TokenBytes token_bytes);
std::unique_ptr<Answer> MakeResponsesAnswer(const ApiRequest& request, const AnswerHead& head,
                                            TokenBytes token_bytes);

// Returns a server-sent event; `name` may be empty.
std::string ServerSentEvent(const Json& data, std::string_view name = "");

// Adds the usage of a call.
void AddUsage(const v1::Usage& usage, TokenCounts* counts);
// Returns the `usage` of /v1/chat/completions and /v1/completions.
Json UsageJson(const TokenCounts& counts);

// Returns "stop" or "length": other reasons end an output that is incomplete, too.
std::string FinishReasonName(v1::FinishReason reason);
// Returns what ended the output, as vLLM's `stop_reason`: a stop string, the id of a stop token, or
// null.
Json StopReason(const v1::GenerateFinished& finished);

}  // namespace tlm::openai

#endif  // TLM_CLIENT_OPENAI_MAPPING_ANSWER_H_
