// One Generate call of `tlm bench`.
#ifndef TLM_CLIENT_CLI_BENCH_CALL_H_
#define TLM_CLIENT_CLI_BENCH_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/support/async_stream.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::cli {

// Belongs to the thread that reads `queue`, whose tags are the calls themselves.
class BenchCall {
 public:
  // Hears of one call; told on the queue's thread.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnStarted(const BenchCall& call, const v1::GenerateStarted& started) = 0;
    // An event with `tokens` tokens came `gap` after the last one; none for the first.
    virtual void OnTokens(const BenchCall& call, uint64_t tokens,
                          std::optional<absl::Duration> gap) = 0;
    // The last word; the call may be destroyed within.
    virtual void OnDone(BenchCall& call, const absl::Status& status) = 0;
  };

  // When it was to be sent, and whether that is in the measured time.
  struct Plan {
    absl::Time due;
    bool measured = false;
  };

  // `listener` outlives the call.
  BenchCall(const Plan& plan, std::unique_ptr<grpc::ClientContext> context, Listener* listener);
  // Sends the request, once. `stub` and `queue` outlive the call, which lives until OnDone.
  void Start(v1::LanguageModel::Stub* stub, grpc::CompletionQueue* queue,
             const v1::GenerateRequest& request);

  // The queue returned this call as its tag.
  void OnEvent(bool ok);
  // OnDone follows soon.
  void Cancel() { context_->TryCancel(); }

  const Plan& plan() const { return plan_; }
  uint64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  enum class Awaits { kStart, kMessage, kStatus };

  void ReadNext();
  void OnMessage();

  const Plan plan_;
  Listener* const listener_;
  Awaits awaits_ = Awaits::kStart;
  uint64_t prompt_tokens_ = 0;  // known from `started` on
  std::optional<absl::Time> last_token_;
  const std::unique_ptr<grpc::ClientContext> context_;
  v1::GenerateResponse response_;
  grpc::Status status_;
  std::unique_ptr<grpc::ClientAsyncReader<v1::GenerateResponse>> reader_;
};

}  // namespace tlm::cli

#endif  // TLM_CLIENT_CLI_BENCH_CALL_H_
