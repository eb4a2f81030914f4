// Continues a Generate stream on another replica: tracks the delivered events and builds the next
// request.
#ifndef TLM_CLIENT_CPP_STREAM_CONTINUATION_H_
#define TLM_CLIENT_CPP_STREAM_CONTINUATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::client {

// Joins the events of successive calls into one stream. Does no I/O and reads no clock.
//
//   call 1   started  tokens 0-2  tokens 3-4  (lost)
//   call 2   started                          tokens 5-9  finished  summary     by resume, or
//   call 2   started  tokens 0-3  tokens 4-7  tokens 8-9  finished  summary     by repetition
//   result   started  tokens 0-2  tokens 3-4  tokens 5-9  finished  summary
//
// With one output and tokens received, the next call carries a ResumePoint. Otherwise it repeats
// the request with the effective parameters, including the seed, and the delivered part is removed
// from its events. Both need the token ids: calls request them, and they are removed if the
// application did not. Thread-compatible.
class StreamContinuation {
 public:
  enum class Taken {
    kDeliver,     // the rest of the event is for the application
    kDrop,        // nothing new in it
    kOtherModel,  // `started` of a replica that cannot continue this stream: end the call
  };

  // soft_time_limit counts from `start`.
  StreamContinuation(v1::GenerateRequest request, absl::Time start);

  // Begins the next call and returns its request. `rename` changes the request_id, if the
  // application set one: the server may still hold it for the lost call.
  v1::GenerateRequest NextRequest(absl::Time now, bool rename);

  // Takes the next event of the current call and removes its delivered parts. INTERNAL if the
  // replica omits or contradicts something; the stream has then failed.
  absl::StatusOr<Taken> Take(v1::GenerateResponse* event);

  // True if `started` was delivered: from then on only the same model can continue.
  bool started() const { return started_; }
  // Says why Take returned kOtherModel for this event.
  std::string DifferenceOf(const v1::GenerateStarted& started) const;

 private:
  using RegionEvents = google::protobuf::RepeatedPtrField<v1::RegionEvent>;
  // The progress in the region events of an output. Events may end at different places in each
  // call, but their joined content is the same.
  struct RegionPosition {
    uint64_t borders = 0;     // starts and ends of regions
    uint64_t text_bytes = 0;  // of deltas, or of markers, since the last border
    uint64_t arguments_bytes = 0;
  };
  struct Output {
    std::vector<uint32_t> ids;  // received, including the ids of the request's own ResumePoint
    uint64_t announced = 0;     // the number of ids that delivered events cover
    uint64_t text_bytes = 0;    // delivered
    RegionPosition regions;     // delivered
    bool finished = false;      // delivered
    uint64_t call_tokens = 0;   // received in the current call, or skipped by its ResumePoint
    uint64_t call_text_bytes = 0;
    RegionPosition call_regions;
  };

  bool Resumes() const;
  absl::StatusOr<Taken> TakeStarted(v1::GenerateStarted* started);
  absl::StatusOr<Taken> TakePrompt(v1::GeneratePrompt* prompt);
  absl::StatusOr<Taken> TakeTokens(v1::GenerateTokens* tokens);
  absl::StatusOr<Taken> TakeFinished(v1::GenerateFinished* finished);
  void TakeSummary(v1::GenerateSummary* summary) const;
  absl::StatusOr<Output*> OutputOf(uint32_t index);
  absl::Status TakeIds(v1::GenerateTokens* tokens, Output* output) const;
  void TakeRegions(RegionEvents* events, Output* output) const;
  bool TakeRegion(v1::RegionEvent* event, Output* output) const;
  void HideIds(v1::GenerateTokens* tokens);

  const v1::GenerateRequest request_;
  const absl::Time start_;
  const bool ids_wanted_;  // whether the application requested ids
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
