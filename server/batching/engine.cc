#include "server/batching/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "model/base/thread_name.h"
#include "model/ops/ops.h"
#include "server/batching/delivery.h"
#include "server/batching/engine_loop.h"
#include "server/batching/request_queue.h"
#include "server/observe/refusals.h"

namespace tlm {
namespace {

// Retry time of requests that end with the server: another server, or this one after its restart,
// takes them.
constexpr absl::Duration kRetryElsewhere = absl::Seconds(1);

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
  if (options.max_queue_time <= absl::ZeroDuration()) {
    return InvalidArgument("max_queue_time is {}, it must be longer than zero",
                           absl::FormatDuration(options.max_queue_time));
  }
  TLM_RETURN_IF_ERROR(CheckAtLeast(options.short_prompt_tokens, 0, "short_prompt_tokens"));
  const double stretch = options.max_decode_stretch;
  if (stretch != 0 && !(stretch >= 1)) {
    return InvalidArgument("max_decode_stretch is {}, the least is 1, or 0 for no bound", stretch);
  }
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

// Threads: the engine thread runs Run() and is the only one to touch loop_; Delivery has its own.
class EngineImpl : public Engine {
 public:
  EngineImpl(LanguageModel& model, const EngineOptions& options, Clock& clock,
             EngineMetrics* metrics, DraftSource* draft_source)
      : clock_(clock),
        max_context_(model.limits().max_context),
        max_outputs_(options.max_running_requests),
        prefix_cache_(options.prefix_cache),
        queue_(std::make_shared<RequestQueue>(
            QueueLoad{options.max_queued_requests, options.max_queued_tokens},
            options.max_queue_time)),
        loop_(model, options, clock, queue_, metrics, MakeKvEvents(options), draft_source) {
    stats_.kv_blocks_total = model.num_kv_blocks();
    stats_.last_progress = clock_.Now();
    thread_ = std::thread([this] { Run(); });
  }
  ~EngineImpl() override { Stop(); }

  absl::Status Submit(Request&& request) override {
    TLM_RETURN_IF_ERROR(CheckRequest(request, max_context_, max_outputs_));
    const absl::Time now = clock_.Now();
    if (request.deadline <= now) return Expired(RequestStage::kArriving);
    const int64_t cached_tokens = request.cache.bypass ? 0 : MostCachedTokens();
    // Counts before the engine can see the request, so that the count is never zero too early.
    AddUnfinished(1);
    absl::Status status = queue_->Push(std::move(request), now, cached_tokens);
    if (!status.ok()) AddUnfinished(-1);
    return status;
  }

  absl::Status CheckOpen() const override { return queue_->CheckOpen(clock_.Now()); }

  void FlushPrefixCache(std::function<void(int64_t)> done) override {
    {
      MutexLock lock(&mutex_);
      if (!stopped_) flushes_.push_back(std::exchange(done, nullptr));
    }
    if (done != nullptr) return done(0);
    queue_->Wake();
  }

  void Drain() override { queue_->Close(); }

  bool WaitUntilIdle(absl::Duration timeout) override {
    using SteadyClock = std::chrono::steady_clock;
    // Longer timeouts overflow the clock.
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
      if (kv_events_.has_value()) kv_events_->Close();
      delivery_.Stop();
    });
  }

  EngineStats Stats() const override {
    const QueueLoad waiting = queue_->waiting();
    const ServiceEstimates estimates = queue_->estimates();
    const absl::Time now = clock_.Now();
    MutexLock lock(&mutex_);
    EngineStats stats = stats_;
    stats.taken = now;
    stats.waiting_requests += waiting.requests;
    stats.waiting_tokens = waiting.prompt_tokens;
    stats.drained_requests_per_second = estimates.drained_requests_per_second();
    stats.drained_prompt_tokens_per_second = estimates.drained_prompt_tokens_per_second();
    stats.prefill_tokens_per_second = estimates.PrefillTokensPerSecond(now);
    stats.decode_tokens_per_second = estimates.DecodeTokensPerSecond(now);
    stats.estimated_queue_time = estimates.QueueTime(waiting);
    stats.draining = queue_->closed();
    if (kv_events_.has_value()) stats.kv_events = kv_events_->stats();
    return stats;
  }

  KvEventLog* kv_events() override { return kv_events_.has_value() ? &*kv_events_ : nullptr; }

 private:
  void Run() {
    NameThisThread("engine");
    while (!stopping_.load(std::memory_order_acquire)) {
      SetBusy();
      Flush(TakeFlushes(/*last=*/false), /*busy=*/true);
      const bool computed = loop_.Step();
      Publish(/*busy=*/computed);
      // A Wake for these flushes may have come before the step's Take, which forgets it.
      if (computed || stopping_.load(std::memory_order_acquire) || flush_wanted()) continue;
      queue_->WaitForWork(loop_.NextDeadline() - clock_.Now());
    }
    queue_->Close();  // nothing may arrive after the last look
    loop_.EndAll(WithRetryAfter(WithReason(Unavailable("the server is shutting down"), "DRAINING"),
                                kRetryElsewhere));
    Publish(/*busy=*/false);
    Flush(TakeFlushes(/*last=*/true), /*busy=*/false);
  }

  using Flushes = std::vector<std::function<void(int64_t)>>;

  // After the last call FlushPrefixCache answers by itself.
  Flushes TakeFlushes(bool last) {
    MutexLock lock(&mutex_);
    stopped_ = last;
    return std::exchange(flushes_, {});
  }

  KvEventLog* MakeKvEvents(const EngineOptions& options) {
    if (!options.kv_events.enabled || !options.prefix_cache) return nullptr;
    return &kv_events_.emplace(options.kv_events, *Clock::Wall(),
                               [this] { delivery_.Call([this] { kv_events_->CallListeners(); }); });
  }

  // Calls back once the statistics show the result.
  void Flush(const Flushes& flushes, bool busy) {
    if (flushes.empty()) return;
    std::vector<int64_t> freed;
    for (size_t i = 0; i < flushes.size(); ++i) freed.push_back(loop_.FlushPrefixCache());
    Publish(busy);
    for (size_t i = 0; i < flushes.size(); ++i) flushes[i](freed[i]);
  }

  bool flush_wanted() const {
    MutexLock lock(&mutex_);
    return !flushes_.empty();
  }

  // An upper bound for any sequence: everything cached is in used or cached blocks.
  int64_t MostCachedTokens() const {
    if (!prefix_cache_) return 0;
    MutexLock lock(&mutex_);
    return (stats_.kv_blocks_used + stats_.kv_blocks_cached) * kBlockTokens;
  }

  void SetBusy() {
    MutexLock lock(&mutex_);
    stats_.busy = true;
    stats_.last_progress = clock_.Now();
  }

  // Fills the streams first, then sets the statistics, then notifies the listeners.
  void Publish(bool busy) {
    EngineLoop::Report report = loop_.TakeReport();
    const absl::Time now = clock_.Now();
    {
      MutexLock lock(&mutex_);
      stats_ = std::move(report.stats);
      stats_.busy = busy;
      stats_.last_progress = now;
    }
    delivery_.Notify(std::move(report.streams));
    if (report.ended > 0) AddUnfinished(-report.ended);
  }

  void AddUnfinished(int64_t count) {
    MutexLock lock(&mutex_);
    unfinished_ += count;
    if (unfinished_ == 0) idle_.NotifyAll();
  }

  Clock& clock_;
  const int64_t max_context_;
  const int64_t max_outputs_;  // most outputs of one request
  const bool prefix_cache_;
  // Shared with token streams that may outlive the engine; see TokenStream::SetWaker.
  const std::shared_ptr<RequestQueue> queue_;
  std::optional<KvEventLog> kv_events_;
  EngineLoop loop_;
  Delivery delivery_;
  std::atomic<bool> stopping_{false};
  std::once_flag stop_once_;

  mutable Mutex mutex_;
  CondVar idle_;
  EngineStats stats_ TLM_GUARDED_BY(mutex_);
  int64_t unfinished_ TLM_GUARDED_BY(mutex_) = 0;  // submitted and not ended
  Flushes flushes_ TLM_GUARDED_BY(mutex_);         // requested and not done
  bool stopped_ TLM_GUARDED_BY(mutex_) = false;    // no thread will run any flush

  std::thread thread_;  // last: it uses the other members
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Start(LanguageModel& model,
                                                      const EngineOptions& options, Clock& clock,
                                                      EngineMetrics* metrics,
                                                      DraftSource* draft_source) {
  TLM_RETURN_IF_ERROR(CheckOptions(options, model));
  return std::make_unique<EngineImpl>(model, options, clock, metrics, draft_source);
}

}  // namespace tlm
