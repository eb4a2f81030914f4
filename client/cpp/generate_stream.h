// The events of a Generate call, read one by one, whatever becomes of the replica that sends them.
#ifndef TLM_CLIENT_CPP_GENERATE_STREAM_H_
#define TLM_CLIENT_CPP_GENERATE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/cpp/call_options.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/server_stream.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::client {

class StreamContinuation;
class TargetPicker;

// while (stream->Read(&event)) Use(event);
// absl::Status status = stream->Finish();
//
// A call that is lost, or refused for the moment, is made again on another target, or on the same
// one when it is back, as CallOptions::resume says and within the deadline: after UNAVAILABLE, a
// CANCELLED nobody here asked for, a broken stream, RESOURCE_EXHAUSTED with RetryInfo. The events
// are those of one undisturbed stream: `started` once, tokens without gap or repetition, `finished`
// once an output, `summary` once. Of a continued stream the summary's usage is that of the whole;
// timing and resources are those of the last replica alone.
//
// What was refused before anything was received is tried once on each target; then RetryInfo is
// waited for if all said UNAVAILABLE, and the refusal returned otherwise. FAILED_PRECONDITION when
// every target serves another model than the one that began the stream.
//
// One thread at a time, but for Cancel. Destroyed before the end, it cancels the call.
class GenerateStream {
 public:
  using Call = ServerStream<v1::GenerateResponse>;
  // Starts a call to a target.
  using StartCall = std::function<std::unique_ptr<Call>(
      size_t target, const v1::GenerateRequest& request, const CallOptions& options)>;

  // Made by Client. `picker` outlives this and chooses for `affinity`, if there is one.
  GenerateStream(const v1::GenerateRequest& request, const CallOptions& options,
                 TargetPicker* picker, std::optional<uint64_t> affinity, StartCall start_call);
  ~GenerateStream();

  // Waits for the next event; false at the end of the stream, whether good or bad.
  bool Read(v1::GenerateResponse* event);

  // How the stream ended. Events not read are dropped.
  absl::Status Finish();

  // Ends the stream early; Finish then returns CANCELLED. Any thread may call it.
  void Cancel() { cancel_.Cancel(); }

  // How often the stream was continued so far, and the index of the target it was last read from.
  int resumes() const { return resumes_; }
  size_t target() const { return target_; }

 private:
  struct RunningCall;
  // Looking for a replica, since the call before was lost.
  struct Search {
    absl::Status cause;  // how that call ended; OK for the first call of the stream
    absl::Time end;      // of the patience
    absl::Duration backoff;
    std::set<size_t> tried;                                 // since the last pause
    absl::Duration retry_delay = absl::InfiniteDuration();  // the shortest told since then
    absl::Status overloaded;                                // a refusal since then that says so
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
  void StartCallTo(size_t target, const v1::GenerateRequest& request, const CallOptions& options);
  absl::Status NoReplica(const absl::Status& last) const;

  const CallOptions options_;
  TargetPicker* const picker_;
  const std::optional<uint64_t> affinity_;
  const StartCall start_call_;
  const absl::Time deadline_;
  CancelToken cancel_;  // the application's and Cancel()
  const std::unique_ptr<StreamContinuation> continuation_;
  std::optional<Search> search_;   // until the call brings something
  std::set<size_t> other_models_;  // targets that cannot continue the stream
  std::set<size_t> lost_calls_;    // targets that may still know the request
  bool rename_ = false;
  int resumes_ = 0;
  size_t target_ = 0;
  std::unique_ptr<RunningCall> call_;  // null when status_ is set
  std::optional<absl::Status> status_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_GENERATE_STREAM_H_
