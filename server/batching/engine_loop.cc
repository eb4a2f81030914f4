#include "server/batching/engine_loop.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

bool IsDecode(const Chunk& chunk) {
  return chunk.sequence->generates() && chunk.decode &&
         chunk.first_position >= chunk.sequence->prompt_tokens();
}

}  // namespace

EngineLoop::EngineLoop(LanguageModel& model, const EngineOptions& options, Clock& clock,
                       std::shared_ptr<RequestQueue> queue, EngineMetrics* metrics,
                       KvEventLog* kv_events, DraftSource* draft_source)
    : options_(options),
      model_(model),
      clock_(clock),
      queue_(std::move(queue)),
      metrics_(metrics),
      pool_(model.num_kv_blocks()),
      cache_(options.prefix_cache ? std::optional<PrefixCache>(std::in_place, pool_)
                                  : std::nullopt),
      scheduler_(options, model.limits(), pool_, cache_ ? &*cache_ : nullptr),
      throttle_(options.max_decode_stretch),
      rates_(options.max_prefill_tokens),
      pipeline_(model),
      draft_source_(draft_source) {
  if (kv_events != nullptr && cache_.has_value()) {
    cache_->set_observer(&kv_events_.emplace(*kv_events, pool_.total_blocks()));
  }
  UpdateStats();
}

bool EngineLoop::Step() {
  TakeArrivals();
  const absl::Time now = clock_.Now();
  DropUnwanted(now);
  if (pipeline_.empty()) {
    FollowMasks(now);
    PrepareDrafts();
    Launch(CompletePlan(), now);
  }
  const bool computes = !pipeline_.empty();
  if (computes) {
    PlanAhead();
    FinishStep(pipeline_.Wait());
  } else {
    last_end_.reset();
  }
  EraseFinished();
  UpdateStats();
  if (kv_events_.has_value()) kv_events_->EndStep();
  return computes;
}

void EngineLoop::TakeArrivals() {
  for (Request& request : queue_->Take()) {
    request.stream->SetWaker(queue_);
    for (const auto& stream : request.branch_streams) stream->SetWaker(queue_);
    const int64_t outputs = 1 + static_cast<int64_t>(request.branch_streams.size());
    sequences_.push_back(std::make_unique<Sequence>(std::move(request), next_number_));
    outputs_left_[next_number_] = outputs;
    next_number_ += outputs;
    ++never_admitted_;
    Sequence& sequence = *sequences_.back();
    SetMask(sequence);
    scheduler_.Add(sequence);
    const auto finish = sequence.FinishedBefore(model_.limits().max_context);
    if (finish.has_value()) EndUncomputed(sequence, *finish, clock_.Now());
  }
}

StepPlan EngineLoop::CompletePlan() {
  StepPlan plan = std::exchange(ahead_, {});
  if (plan.chunks.empty()) {
    plan = PlanStep();
  } else {
    scheduler_.TopUp(plan);
  }
  LeaveQueue(plan);
  return plan;
}

void EngineLoop::PlanAhead() {
  TakeArrivals();
  ahead_ = PlanStep();
  LeaveQueue(ahead_);
  if (pipeline_.CanLaunch(ahead_) && !WouldDraft()) Launch(std::exchange(ahead_, {}), clock_.Now());
}

StepPlan EngineLoop::PlanStep() {
  return scheduler_.Plan(throttle_.PrefillTokens(scheduler_.decoding()),
                         throttle_.ShortStepTokens());
}

void EngineLoop::Launch(StepPlan plan, absl::Time now) {
  if (plan.chunks.empty()) return;
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.sequence->started()) continue;
    StartStreams(*chunk.sequence, now);
    if (chunk.sequence->mask() != nullptr) masks_.Add(chunk.sequence->shared_mask());
    if (metrics_ != nullptr) metrics_->AddPrompt(chunk.sequence->prompt_tokens());
  }
  SetDraftMasks(plan);
  pipeline_.Launch(std::move(plan), now);
}

void EngineLoop::StartStreams(Sequence& sequence, absl::Time now) {
  const StreamStart start{.queue_time = sequence.MarkStarted(now),
                          .cached_prompt_tokens = sequence.cached_prompt_tokens()};
  sequence.stream().PushStart(start);
  report_.streams.push_back(sequence.request().stream);
  for (const auto& stream : sequence.request().branch_streams) {
    if (stream == nullptr) continue;
    stream->PushStart(start);
    report_.streams.push_back(stream);
  }
}

void EngineLoop::FinishStep(StepResults results) {
  const absl::Time end = clock_.Now();
  EngineStats& stats = report_.stats;
  ++stats.steps;
  step_fault_ = std::exchange(draft_fault_, absl::OkStatus());
  ServiceRates::Step computed;
  if (results.status().ok()) {
    computed = CountTokens(results, end);
    TakeResults(results, end);
    computed.decode_tokens += std::exchange(accepted_, 0);
    RecordRates(results.plan(), computed, end);
  } else {
    FailStep(results, end);
  }
  if (metrics_ != nullptr) {
    metrics_->EndStep(computed.prefill_tokens + computed.decode_tokens, computed.elapsed);
  }
  last_end_ = end;
  step_time_ = computed.elapsed;
  stats.fault = step_fault_;
  stats.consecutive_faults = step_fault_.ok() ? 0 : stats.consecutive_faults + 1;
}

void EngineLoop::FailStep(const StepResults& results, absl::Time now) {
  const absl::Status status = DeviceFault(results.status());
  EndChunks(results.plan(), status, now);
  // Steps launched after it are lost too.
  while (!pipeline_.empty()) EndChunks(pipeline_.Wait().plan(), status, now);
  // Other sequences may share blocks with the failed ones, and the cache may hold some: none of the
  // device's contents is trusted any more.
  ahead_ = {};
  FlushPrefixCache();
  for (const auto& sequence : sequences_) {
    if (sequence->blocks().empty()) continue;
    scheduler_.Remove(*sequence);
    scheduler_.Add(*sequence);
  }
}

absl::Status EngineLoop::DeviceFault(const absl::Status& error) {
  step_fault_ = error;
  return Internal("the device failed while computing: {}", std::string(error.message()));
}

ServiceRates::Step EngineLoop::CountTokens(const StepResults& results, absl::Time end) const {
  // Gapless steps are measured from the end of one to the end of the next.
  ServiceRates::Step step{.elapsed = end - last_end_.value_or(results.begin())};
  for (const Chunk& chunk : results.plan().chunks) {
    if (chunk.sequence->state() == SequenceState::kFinished) continue;  // its token is surplus
    if (IsDecode(chunk)) {
      step.decode_tokens += chunk.num_tokens - chunk.num_draft;
    } else {
      step.prefill_tokens += chunk.num_tokens;
    }
  }
  return step;
}

void EngineLoop::RecordRates(const StepPlan& plan, const ServiceRates::Step& step, absl::Time end) {
  report_.stats.prefill_tokens += step.prefill_tokens;
  report_.stats.decode_tokens += step.decode_tokens;
  throttle_.Record(plan.decodes, plan.prefill_tokens, step.elapsed);
  RecordCosts(plan, step.elapsed);
  rates_.RecordStep(step, end);
  rates_.RecordDrain(std::exchange(left_queue_, {}), never_admitted_, step.elapsed);
  queue_->SetEstimates(rates_.Estimates());
}

void EngineLoop::LeaveQueue(const StepPlan& plan) {
  for (Sequence* sequence : plan.admitted) {
    if (!sequence->queued()) continue;
    LeaveQueue(*sequence);
    ++left_queue_.requests;
    left_queue_.prompt_tokens += sequence->input_tokens();
  }
}

void EngineLoop::LeaveQueue(Sequence& sequence) {
  sequence.LeaveQueue();
  --never_admitted_;
  queue_->Release(sequence.request(), sequence.input_tokens());
}

int64_t EngineLoop::FlushPrefixCache() {
  if (!cache_.has_value()) return 0;
  for (const auto& sequence : sequences_) sequence->StopPublishing();
  const int64_t freed = cache_->Flush();
  if (kv_events_.has_value()) kv_events_->EndStep();
  UpdateStats();
  return freed;
}

void EngineLoop::UpdateStats() {
  EngineStats& stats = report_.stats;
  stats.running_requests = scheduler_.running();
  stats.parked_requests = scheduler_.parked();
  stats.waiting_requests = scheduler_.waiting() - never_admitted_;
  stats.kv_blocks_used = pool_.used_blocks();
  stats.kv_blocks_cached = pool_.idle_blocks();
  stats.kv_blocks_total = pool_.total_blocks();
  stats.preemptions = scheduler_.preemptions();
  stats.model_runs = model_.run_counts();
  if (cache_.has_value()) stats.prefix_cache = cache_->stats();
}

absl::Time EngineLoop::NextDeadline() const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& sequence : sequences_) {
    const Request& request = sequence->request();
    earliest = std::min({earliest, request.deadline, request.soft_deadline});
  }
  return earliest;
}

EngineLoop::Report EngineLoop::TakeReport() {
  Report report{.streams = std::exchange(report_.streams, {}),
                .ended = std::exchange(report_.ended, 0),
                .stats = report_.stats};
  return report;
}

}  // namespace tlm
