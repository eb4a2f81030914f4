#include "server/batching/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "model/ops/ops.h"
#include "server/batching/delivery.h"
#include "server/batching/engine_loop.h"
#include "server/batching/request_queue.h"

namespace tlm {
namespace {

absl::Status CheckAtLeast(int64_t value, int64_t least, const char* name) {
  if (value >= least) return absl::OkStatus();
  return InvalidArgument("{} is {}, the least is {}", name, value, least);
}

absl::Status CheckOptions(const EngineOptions& options, const LanguageModel& model) {
  TLM_RETURN_IF_ERROR(CheckAtLeast(options.max_batch_tokens, 1, "max_batch_tokens"));
  TLM_RETURN_IF_ERROR(CheckAtLeast(options.max_prefill_tokens, 1, "max_prefill_tokens"));
  TLM_RETURN_IF_ERROR(CheckAtLeast(options.max_running_requests, 1, "max_running_requests"));
  TLM_RETURN_IF_ERROR(CheckAtLeast(options.max_queued_requests, 1, "max_queued_requests"));
  TLM_RETURN_IF_ERROR(CheckAtLeast(options.max_queued_tokens, 1, "max_queued_tokens"));
  const BatchLimits& limits = model.limits();
  TLM_RETURN_IF_ERROR(CheckAtLeast(limits.max_logits_rows, 1, "max_logits_rows of the model"));
  if (options.max_batch_tokens > limits.max_tokens) {
    return InvalidArgument("max_batch_tokens is {}, the model's batches have at most {} tokens",
                           options.max_batch_tokens, limits.max_tokens);
  }
  if (options.max_running_requests > limits.max_sequences) {
    return InvalidArgument(
        "max_running_requests is {}, the model's batches have at most {} sequences",
        options.max_running_requests, limits.max_sequences);
  }
  if (model.num_kv_blocks() < BlocksFor(limits.max_context)) {
    return InvalidArgument(
        "the KV cache has {} blocks of {} tokens, one sequence of max_context {} needs {}",
        model.num_kv_blocks(), kBlockTokens, limits.max_context, BlocksFor(limits.max_context));
  }
  return absl::OkStatus();
}

absl::Status CheckForward(const Request& request) {
  const std::vector<int64_t>& positions = request.forward->positions;
  if (positions.empty()) return InvalidArgument("no position's logits are wanted");
  if (request.stream->RoomForRows() < 1) return InvalidArgument("the mailbox holds no rows");
  int64_t previous = -1;
  for (const int64_t position : positions) {
    if (position <= previous) {
      return InvalidArgument("position {} does not ascend from {}", position, previous);
    }
    previous = position;
  }
  if (previous < static_cast<int64_t>(request.prompt.size())) return absl::OkStatus();
  return InvalidArgument("position {} is not below the prompt's length {}", previous,
                         request.prompt.size());
}

absl::Status CheckScore(const Request& request, int64_t max_context) {
  const std::vector<std::vector<int32_t>>& continuations = request.score->continuations;
  if (continuations.empty()) return InvalidArgument("no continuation is to be scored");
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  for (size_t i = 0; i < continuations.size(); ++i) {
    const int64_t tokens = static_cast<int64_t>(continuations[i].size());
    if (tokens == 0) return InvalidArgument("continuation {} has no tokens", i);
    if (tokens > max_context - prompt) {
      return InvalidArgument("the prompt and continuation {} have {} tokens, the limit is {}", i,
                             prompt + tokens, max_context);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckGenerate(const Request& request, int64_t max_outputs) {
  TLM_RETURN_IF_ERROR(CheckAtLeast(request.generate->stop.max_new_tokens, 1, "max_new_tokens"));
  const int64_t outputs = 1 + static_cast<int64_t>(request.branch_streams.size());
  if (outputs > max_outputs) {
    return InvalidArgument("{} outputs are wanted of one prompt, max_running_requests is {}",
                           outputs, max_outputs);
  }
  return absl::OkStatus();
}

// What would break the step for others.
absl::Status CheckRequest(const Request& request, int64_t max_context, int64_t max_outputs) {
  TLM_CHECK(request.stream != nullptr);
  TLM_CHECK(
      request.generate.has_value() + request.forward.has_value() + request.score.has_value() == 1);
  TLM_CHECK(request.generate.has_value() || request.branch_streams.empty());
  for (const auto& stream : request.branch_streams) TLM_CHECK(stream != nullptr);
  if (request.prompt.empty()) return InvalidArgument("the prompt has no tokens");
  if (static_cast<int64_t>(request.prompt.size()) > max_context) {
    return InvalidArgument("the prompt has {} tokens, the limit is {}", request.prompt.size(),
                           max_context);
  }
  if (request.forward.has_value()) return CheckForward(request);
  if (request.score.has_value()) return CheckScore(request, max_context);
  return CheckGenerate(request, max_outputs);
}

// Threads: the engine thread runs Run() and is the only one to touch loop_; Delivery has its own.
class EngineImpl : public Engine {
 public:
  EngineImpl(LanguageModel& model, const EngineOptions& options, Clock& clock)
      : clock_(clock),
        max_context_(model.limits().max_context),
        max_outputs_(options.max_running_requests),
        queue_(std::make_shared<RequestQueue>(
            QueueLoad{options.max_queued_requests, options.max_queued_tokens})),
        loop_(model, options, clock, queue_) {
    stats_.kv_blocks_total = model.num_kv_blocks();
    stats_.last_progress = clock_.Now();
    thread_ = std::thread([this] { Run(); });
  }
  ~EngineImpl() override { Stop(); }

  absl::Status Submit(Request&& request) override {
    TLM_RETURN_IF_ERROR(CheckRequest(request, max_context_, max_outputs_));
    const absl::Time now = clock_.Now();
    if (request.deadline <= now) {
      return WithReason(DeadlineExceeded("the deadline passed before the request was queued"),
                        "EXPIRED_IN_QUEUE");
    }
    // Counted before the engine can see it, so that "none left" is never true too early.
    AddUnfinished(1);
    absl::Status status = queue_->Push(std::move(request), now);
    if (!status.ok()) AddUnfinished(-1);
    return status;
  }

  void Drain() override { queue_->Close(); }

  bool WaitUntilIdle(absl::Duration timeout) override {
    using SteadyClock = std::chrono::steady_clock;
    // Longer ones overflow the clock.
    timeout = std::min(timeout, absl::Hours(24 * 365));
    const auto end = SteadyClock::now() + absl::ToChronoNanoseconds(timeout);
    MutexLock lock(&mutex_);
    while (unfinished_ > 0) {
      const auto left = end - SteadyClock::now();
      if (left <= SteadyClock::duration::zero()) return false;
      idle_.WaitFor(&mutex_, left);
    }
    return true;
  }

  void Stop() override {
    std::call_once(stop_once_, [this] {
      stopping_.store(true, std::memory_order_release);
      queue_->Close();
      queue_->Wake();
      thread_.join();
      delivery_.Stop();
    });
  }

  EngineStats Stats() const override {
    const QueueLoad waiting = queue_->waiting();
    MutexLock lock(&mutex_);
    EngineStats stats = stats_;
    stats.waiting_requests += waiting.requests;
    stats.waiting_tokens = waiting.prompt_tokens;
    return stats;
  }

 private:
  void Run() {
    while (!stopping_.load(std::memory_order_acquire)) {
      SetBusy();
      const bool computed = loop_.Step();
      Publish(/*busy=*/computed);
      // Stop's Wake may have come before the step's Take, which forgets it.
      if (computed || stopping_.load(std::memory_order_acquire)) continue;
      queue_->WaitForWork(loop_.NextDeadline() - clock_.Now());
    }
    queue_->Close();  // nothing may come in behind the last look
    loop_.EndAll(WithReason(Unavailable("the server is shutting down"), "DRAINING"));
    Publish(/*busy=*/false);
  }

  void SetBusy() {
    MutexLock lock(&mutex_);
    stats_.busy = true;
    stats_.last_progress = clock_.Now();
  }

  // Mailboxes are filled, then the figures are right, then listeners are told.
  void Publish(bool busy) {
    EngineLoop::Report report = loop_.TakeReport();
    const absl::Time now = clock_.Now();
    {
      MutexLock lock(&mutex_);
      stats_ = std::move(report.stats);
      stats_.busy = busy;
      stats_.last_progress = now;
    }
    delivery_.Notify(report.streams);
    if (report.ended > 0) AddUnfinished(-report.ended);
  }

  void AddUnfinished(int64_t count) {
    MutexLock lock(&mutex_);
    unfinished_ += count;
    if (unfinished_ == 0) idle_.NotifyAll();
  }

  Clock& clock_;
  const int64_t max_context_;
  const int64_t max_outputs_;  // of one request
  // Shared with mailboxes that may outlive the engine; see TokenStream::SetWaker.
  const std::shared_ptr<RequestQueue> queue_;
  EngineLoop loop_;
  Delivery delivery_;
  std::atomic<bool> stopping_{false};
  std::once_flag stop_once_;

  mutable Mutex mutex_;
  CondVar idle_;
  EngineStats stats_ TLM_GUARDED_BY(mutex_);
  int64_t unfinished_ TLM_GUARDED_BY(mutex_) = 0;  // submitted and not ended

  std::thread thread_;  // last: uses all others
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(LanguageModel& model,
                                                      const EngineOptions& options, Clock& clock) {
  TLM_RETURN_IF_ERROR(CheckOptions(options, model));
  return std::make_unique<EngineImpl>(model, options, clock);
}

}  // namespace tlm
