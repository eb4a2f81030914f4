// One Generate call on a completion queue, and the record of what happened when.
#ifndef TLM_CLIENT_LOAD_GENERATE_CALL_H_
#define TLM_CLIENT_LOAD_GENERATE_CALL_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/benchmarks/load/workload.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::bench {

using SteadyClock = std::chrono::steady_clock;
using TimePoint = SteadyClock::time_point;

// From `from` to `to`, in seconds.
double Seconds(TimePoint from, TimePoint to);
// May be infinite, which is far away.
TimePoint After(TimePoint from, double seconds);

struct CallRecord {
  TimePoint due;   // when it was to be sent
  TimePoint sent;  // when it was: later if this process could not keep up
  std::optional<TimePoint> first_token;
  TimePoint last_token;
  TimePoint done;
  int64_t prompt_tokens = 0;
  int64_t cached_prompt_tokens = 0;
  int64_t wanted_tokens = 0;
  int64_t tokens = 0;       // received
  std::vector<float> gaps;  // seconds between successive events with tokens
  bool started = false;     // the server announced the first step
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string reason;  // what the server's ErrorInfo says
  std::optional<double> retry_seconds;
};

// Not thread-safe: all calls of a queue belong to the thread that reads it. The queue's tags are
// the calls themselves.
class GenerateCall {
 public:
  // Hears of one call; told on the queue's thread.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnTokens(GenerateCall& call, int64_t tokens) = 0;
    // The last word; the call may be destroyed within.
    virtual void OnDone(GenerateCall& call) = 0;
  };

  // Sends the request. `queue` and `listener` outlive the call, which lives until OnDone.
  GenerateCall(v1::LanguageModel::Stub& stub, grpc::CompletionQueue& queue,
               const PlannedRequest& request, TimePoint due, Listener& listener);

  // The queue returned this call as its tag.
  void OnEvent(bool ok);
  // OnDone follows soon.
  void Cancel() { context_.TryCancel(); }

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
  grpc::ClientContext context_;
  v1::GenerateResponse response_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader_;
};

}  // namespace tlm::bench

#endif  // TLM_CLIENT_LOAD_GENERATE_CALL_H_
