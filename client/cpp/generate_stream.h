// Reads the events of a Generate call one by one, across failures of replicas.
#ifndef TLM_CLIENT_CPP_GENERATE_STREAM_H_
#define TLM_CLIENT_CPP_GENERATE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/call_options.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/server_stream.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::client {

class StreamContinuation;
class TargetPicker;

// Use:
// while (stream->Read(&event)) Use(event);
// absl::Status status = stream->Finish();
//
// A call that is lost or refused temporarily is repeated on another target, or on the same one once
// it is back, within CallOptions::resume and the deadline: after UNAVAILABLE, CANCELLED that was
// not requested here, a broken stream, or RESOURCE_EXHAUSTED with RetryInfo. The events form one
// stream: `started` once, tokens without gap or repetition, `finished` once per output, `summary`
// once. Its usage covers the whole stream; its timing and resources cover only the last replica.
//
// A request that is refused before its first event is tried once on each target; then the stream
// waits for the retry time if all were UNAVAILABLE, and returns the refusal otherwise.
//
// A target whose fingerprint differs from the stream's is left out. FAILED_PRECONDITION, reason
// STALE_FINGERPRINT, as soon as there is such a target and each other target, the lost replica
// included, was asked since the break and cannot be reached. The stream waits for a target that
// starts, drains or is overloaded.
//
// Not thread-safe, except Cancel. The destructor cancels the call.
class GenerateStream {
 public:
  using Call = ServerStream<v1::GenerateResponse>;
  // Starts a call to a target.
  using StartCall = std::function<std::unique_ptr<Call>(
      size_t target, const v1::GenerateRequest& request, const CallOptions& options)>;

  // Client calls this. `picker` must outlive the stream; it chooses by `affinity`, if there is one.
  GenerateStream(const v1::GenerateRequest& request, const CallOptions& options,
                 TargetPicker* picker, std::optional<uint64_t> affinity, StartCall start_call);
  ~GenerateStream();

  // Waits for the next event; false at the end of the stream, successful or not.
  bool Read(v1::GenerateResponse* event);

  // Drops the remaining events; returns the status of the stream.
  absl::Status Finish();

  // Ends the stream; Finish then returns CANCELLED. Thread-safe.
  void Cancel() { cancel_.Cancel(); }

  // Return how often the stream was continued so far, and the index of its current target.
  int resumes() const { return resumes_; }
  size_t target() const { return target_; }

 private:
  struct RunningCall;
  // The search for a replica after a lost call.
  struct Search {
    absl::Status cause;  // the end of the lost call; OK for the first call of the stream
    absl::Time end;      // by MonotonicNow, like deadline_
    absl::Duration backoff;
    std::set<size_t> tried;                                 // since the last pause
    absl::Duration retry_delay = absl::InfiniteDuration();  // the shortest one since then
    absl::Status overloaded;                                // a refusal by overload since then
    // True if, since the last pause, a target that may be of the same model answered, or the lost
    // replica was not asked again.
    bool worth_waiting = false;
  };

  bool resumable() const { return options_.resume.max_resumes > 0; }
  std::optional<size_t> Pick(absl::Time now, const std::set<size_t>& excluded) const;
  void BeginSearch(const absl::Status& cause, absl::Time now);
  void NoteProgress();
  void EndCall();
  void GoOnAfter(const absl::Status& status);
  void SearchOn(const absl::Status& status);
  bool Pause(const absl::Status& status);
  void Start(size_t target);
  void LeaveOut(const absl::Status& status);
  void StartCallTo(size_t target, const v1::GenerateRequest& request, const CallOptions& options);
  absl::Status NoReplica(const absl::Status& last) const;
  absl::Status OnlyOtherModels() const;

  const CallOptions options_;
  TargetPicker* const picker_;
  const std::optional<uint64_t> affinity_;
  const StartCall start_call_;
  const absl::Time deadline_;
  CancelToken cancel_;  // the application's and Cancel()
  const std::unique_ptr<StreamContinuation> continuation_;
  std::optional<Search> search_;   // set until the first event of a call
  std::set<size_t> other_models_;  // targets that cannot continue the stream
  std::string why_other_;          // which of them was found last, and why; empty if there are none
  std::set<size_t> lost_calls_;    // targets that may still know the request
  bool rename_ = false;
  int resumes_ = 0;
  size_t target_ = 0;
  std::unique_ptr<RunningCall> call_;  // null when status_ is set
  std::optional<absl::Status> status_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_GENERATE_STREAM_H_
