// One Generate call on a completion queue, and the record of its events.
#ifndef TLM_CLIENT_LOAD_GENERATE_CALL_H_
#define TLM_CLIENT_LOAD_GENERATE_CALL_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/channel.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::load {

using SteadyClock = std::chrono::steady_clock;
using TimePoint = SteadyClock::time_point;

// Returns the seconds from `from` to `to`.
double Seconds(TimePoint from, TimePoint to);
// Returns the time `seconds` after `from`; for infinity a time a few years later.
TimePoint After(TimePoint from, double seconds);

// Reads the events of a Generate call on a completion queue, which returns `tag` for each of these
// operations.
class EventReader {
 public:
  virtual ~EventReader() = default;
  virtual void StartCall(void* tag) = 0;
  virtual void Read(void* tag) = 0;
  virtual void Finish(grpc::Status* status, void* tag) = 0;
  // Returns the event of the last Read.
  virtual const v1::GenerateResponse& event() = 0;
};

// Prepares a call on a channel. `context` and `queue` must outlive the reader.
using PrepareCall = std::function<std::unique_ptr<EventReader>(
    const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
    const v1::GenerateRequest& request, grpc::CompletionQueue* queue)>;

// Connections to servers of one model. Not thread-safe.
class Connections {
 public:
  // Makes `count` connections to each of the targets. Returns the errors of MakeChannel.
  static absl::StatusOr<Connections> Create(const std::vector<std::string>& targets, int count,
                                            const client::ClientOptions& options);

  // Waits until all connections are established, until `timeout`, or until `cancel` (may be null)
  // is cancelled.
  void WaitUntilConnected(absl::Duration timeout, const client::CancelToken* cancel);

  // Uses another protocol than tlm.v1 for calls.
  void set_protocol(PrepareCall prepare) { prepare_ = std::move(prepare); }
  // Prepares a call on the next connection, round robin.
  std::unique_ptr<EventReader> Prepare(grpc::ClientContext* context,
                                       const v1::GenerateRequest& request,
                                       grpc::CompletionQueue* queue);
  // Returns the value of the `authorization` metadata; empty without a key.
  const std::string& authorization() const { return authorization_; }

 private:
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  PrepareCall prepare_;
  size_t next_ = 0;
  std::string authorization_;
};

struct PlannedRequest {
  v1::GenerateRequest message;
  double deadline_seconds = std::numeric_limits<double>::infinity();
};

struct CallRecord {
  TimePoint due;   // scheduled start
  TimePoint sent;  // actual start: later if this process could not keep up
  std::optional<TimePoint> first_token;
  TimePoint last_token;
  TimePoint done;
  int64_t prompt_tokens = 0;  // the next two are as the server reports them in `started`
  int64_t cached_prompt_tokens = 0;
  int64_t wanted_tokens = 0;            // max_new_tokens of the request
  int64_t tokens = 0;                   // received
  std::vector<float> gaps;              // seconds between successive events with tokens
  bool started = false;                 // `started` was received
  std::optional<double> queue_seconds;  // as the server reports it
  bool cancelled = false;               // by Cancel
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string reason;                   // from the server's ErrorInfo
  std::optional<double> retry_seconds;  // from the server's RetryInfo

  bool ok() const { return code == absl::StatusCode::kOk; }
};

// One call. Not thread-safe: all calls of a queue belong to the thread that reads it. The queue's
// tags are pointers to the calls.
class GenerateCall {
 public:
  // The queue's thread calls it.
  class Listener {
   public:
    virtual ~Listener() = default;
    // An event with `tokens` tokens arrived.
    virtual void OnTokens(GenerateCall& call, int64_t tokens) = 0;
    // The call has ended and may be destroyed.
    virtual void OnDone(GenerateCall& call) = 0;
  };

  // Sends the request. `queue` and `listener` must outlive the call, which must live until OnDone.
  // The deadline counts from `due`.
  GenerateCall(Connections& connections, grpc::CompletionQueue& queue,
               const PlannedRequest& request, TimePoint due, Listener& listener);

  // Call it when the queue returns this call as its tag.
  void OnEvent(bool ok);
  // Cancels the call; OnDone follows soon.
  void Cancel();

  const CallRecord& record() const { return record_; }
  CallRecord TakeRecord() { return std::move(record_); }

 private:
  enum class Awaits { kStart, kMessage, kStatus };

  void ReadNext();
  void OnMessage();
  void OnStatus();

  Listener& listener_;
  CallRecord record_;
  Awaits awaits_ = Awaits::kStart;
  std::unique_ptr<grpc::ClientContext> context_;
  grpc::Status status_;
  std::unique_ptr<EventReader> reader_;
};

}  // namespace tlm::load

#endif  // TLM_CLIENT_LOAD_GENERATE_CALL_H_
