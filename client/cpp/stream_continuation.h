// What an application has received of a Generate stream, and how the stream goes on elsewhere when
// the replica that sends it dies.
#ifndef TLM_CLIENT_CPP_STREAM_CONTINUATION_H_
#define TLM_CLIENT_CPP_STREAM_CONTINUATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// Turns the events of several calls, one after the other, into one stream. Pure state: no network,
// no clock.
//
//   call 1   started  tokens 0-2  tokens 3-4  (lost)
//   call 2   started                          tokens 5-9  finished  summary     by resume, or
//   call 2   started  tokens 0-3  tokens 4-7  tokens 8-9  finished  summary     by repetition
//   result   started  tokens 0-2  tokens 3-4  tokens 5-9  finished  summary
//
// With one output and tokens received the next call carries a ResumePoint; otherwise it repeats the
// request, with the parameters in effect fixed, the seed among them, and what was delivered before
// is cut off its events. For both the ids of the tokens are needed: calls ask for them, and they
// are taken out again if the application did not. Thread-compatible.
class StreamContinuation {
 public:
  enum class Taken {
    kDeliver,     // what is left of the event is for the application
    kDrop,        // nothing is left of it
    kOtherModel,  // `started` of a replica that does not continue this stream: end the call
  };

  // `start` is when soft_time_limit begins.
  StreamContinuation(v1::GenerateRequest request, absl::Time start);

  // Begins the next call: its request. `rename` gives it another request_id, if the application
  // chose one: the server may still hold the id for the call that was lost.
  v1::GenerateRequest NextRequest(absl::Time now, bool rename);

  // Takes the next event of the current call, and cuts off what the application has. INTERNAL when
  // the replica leaves something out or contradicts what was delivered; nothing can be delivered
  // after that.
  absl::StatusOr<Taken> Take(v1::GenerateResponse* event);

  // Whether `started` was delivered: from then on only the same model can continue.
  bool started() const { return started_; }

 private:
  struct Output {
    std::vector<uint32_t> ids;  // received, those of the request's own ResumePoint included
    uint64_t announced = 0;     // of ids: those that delivered events stand for
    uint64_t text_bytes = 0;    // delivered
    bool finished = false;      // delivered
    uint64_t call_tokens = 0;   // received in the current call, or skipped by its ResumePoint
    uint64_t call_text_bytes = 0;
  };

  bool Resumes() const;
  absl::StatusOr<Taken> TakeStarted(v1::GenerateStarted* started);
  absl::StatusOr<Taken> TakePrompt(v1::GeneratePrompt* prompt);
  absl::StatusOr<Taken> TakeTokens(v1::GenerateTokens* tokens);
  absl::StatusOr<Taken> TakeFinished(const v1::GenerateFinished& finished);
  void TakeSummary(v1::GenerateSummary* summary) const;
  absl::StatusOr<Output*> OutputOf(uint32_t index);
  absl::Status TakeIds(v1::GenerateTokens* tokens, Output* output) const;
  void HideIds(v1::GenerateTokens* tokens);

  const v1::GenerateRequest request_;
  const absl::Time start_;
  const bool ids_wanted_;  // by the application
  bool has_tokenizer_ = false;
  int calls_ = 0;
  bool call_started_ = false;  // the current call
  bool started_ = false;
  v1::SamplingParams effective_;
  std::string fingerprint_;
  uint64_t prompt_tokens_ = 0;
  uint64_t cached_prompt_tokens_ = 0;
  uint64_t prompt_delivered_ = 0;  // tokens in `prompt` events
  std::vector<Output> outputs_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_STREAM_CONTINUATION_H_
