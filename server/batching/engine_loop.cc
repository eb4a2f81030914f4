#include "server/batching/engine_loop.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "model/base/error_details.h"
#include "model/base/errors.h"
#include "server/batching/batch_builder.h"

namespace tlm {
namespace {

SchedulerLimits LimitsFor(const EngineOptions& options, const BatchLimits& limits) {
  return {.max_batch_tokens = options.max_batch_tokens,
          .max_prefill_tokens = options.max_prefill_tokens,
          .max_running_sequences = options.max_running_requests,
          .max_logits_rows = limits.max_logits_rows};
}

// What a draw would refuse: such a row cannot have come from sound arithmetic.
absl::Status CheckLogits(std::span<const float> logits, int64_t position) {
  float largest = -std::numeric_limits<float>::infinity();
  bool nan = false;
  for (const float logit : logits) {
    nan |= logit != logit;
    largest = std::max(largest, logit);
  }
  if (!nan && std::abs(largest) <= std::numeric_limits<float>::max()) return absl::OkStatus();
  return DataLoss("the logits at position {} are not finite", position);
}

}  // namespace

EngineLoop::EngineLoop(LanguageModel& model, const EngineOptions& options, Clock& clock,
                       std::shared_ptr<RequestQueue> queue)
    : model_(model),
      clock_(clock),
      queue_(std::move(queue)),
      pool_(model.num_kv_blocks()),
      scheduler_(LimitsFor(options, model.limits()), pool_) {
  UpdateStats();
}

bool EngineLoop::Step() {
  TakeArrivals();
  const absl::Time begin = clock_.Now();
  DropUnwanted(begin);
  const StepPlan plan = scheduler_.Plan();
  LeaveQueue(plan);
  if (!plan.chunks.empty()) {
    StartChunks(plan, begin);
    BuildBatch(plan, &batch_);
    const absl::StatusOr<std::span<const float>> logits = model_.Forward(batch_);
    const absl::Time end = clock_.Now();
    ++report_.stats.steps;
    if (logits.ok()) {
      TakeResults(plan, *logits, end);
    } else {
      FailChunks(plan, logits.status(), end);
    }
    MeasureDrain(plan, end - begin);
  }
  EraseFinished();
  UpdateStats();
  return !plan.chunks.empty();
}

void EngineLoop::TakeArrivals() {
  for (Request& request : queue_->Take()) {
    sequences_.push_back(std::make_unique<Sequence>(std::move(request), next_number_++));
    ++never_admitted_;
    Sequence& sequence = *sequences_.back();
    sequence.stream().SetWaker(queue_);
    scheduler_.Add(sequence);
  }
}

void EngineLoop::DropUnwanted(absl::Time now) {
  for (const auto& sequence : sequences_) {
    if (sequence->stream().detached()) {
      End(*sequence, Cancelled("the caller cancelled the request"), Finish(), now);
    } else if (sequence->request().deadline <= now) {
      const bool running = sequence->admitted();
      End(*sequence,
          WithReason(DeadlineExceeded("the deadline passed while the request was {}",
                                      running ? "running" : "queued"),
                     running ? "EXPIRED_RUNNING" : "EXPIRED_IN_QUEUE"),
          Finish(), now);
    }
  }
  EraseFinished();
}

void EngineLoop::LeaveQueue(const StepPlan& plan) {
  for (const Sequence* sequence : plan.admitted) {
    if (sequence->preemptions() == 0) LeaveQueue(*sequence);
  }
}

void EngineLoop::LeaveQueue(const Sequence& sequence) {
  --never_admitted_;
  queue_->Release(sequence.prompt_tokens());
}

void EngineLoop::StartChunks(const StepPlan& plan, absl::Time now) {
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *chunk.sequence;
    if (sequence.started()) continue;
    sequence.stream().PushStart({.queue_time = sequence.MarkStarted(now)});
    report_.streams.push_back(sequence.request().stream);
  }
}

void EngineLoop::FailChunks(const StepPlan& plan, const absl::Status& error, absl::Time now) {
  report_.stats.fault = error;
  const absl::Status status =
      Internal("the device failed while computing: {}", std::string(error.message()));
  for (const Chunk& chunk : plan.chunks) End(*chunk.sequence, status, Finish(), now);
}

void EngineLoop::TakeResults(const StepPlan& plan, std::span<const float> logits, absl::Time now) {
  const size_t vocab_size = static_cast<size_t>(model_.vocab_size());
  TLM_CHECK(logits.size() == batch_.logits_rows.size() * vocab_size);
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *chunk.sequence;
    CountTokens(chunk);
    sequence.MarkComputed(chunk.num_tokens);
    for (int64_t row = 0; row < chunk.num_rows; ++row) {
      const std::span<const float> row_logits = logits.first(vocab_size);
      logits = logits.subspan(vocab_size);
      if (sequence.state() == SequenceState::kFinished) continue;  // an earlier row was bad
      if (sequence.generates()) {
        TakeToken(sequence, row_logits, now);
      } else {
        TakeRow(sequence, row_logits, now);
      }
    }
    if (chunk.num_rows > 0) report_.streams.push_back(sequence.request().stream);
  }
}

void EngineLoop::TakeToken(Sequence& sequence, std::span<const float> logits, absl::Time now) {
  const GenerateWork& work = *sequence.request().generate;
  const DrawKey key{.output_index = work.output_index,
                    .position = static_cast<uint64_t>(sequence.target())};
  absl::StatusOr<SampledToken> token =
      sampler_.Sample(logits, work.sampling, key, work.score, sequence.banned_tokens());
  if (!token.ok()) return End(sequence, token.status(), Finish(), now);
  if (sequence.generated_tokens() == 0) sequence.MarkFirstToken(now);
  const std::optional<Finish> finish = sequence.Append(token->id, model_.limits().max_context);
  sequence.stream().PushToken(*std::move(token));
  if (finish.has_value()) End(sequence, absl::OkStatus(), *finish, now);
}

void EngineLoop::TakeRow(Sequence& sequence, std::span<const float> logits, absl::Time now) {
  const int64_t position = sequence.wanted_positions().front();
  if (const absl::Status status = CheckLogits(logits, position); !status.ok()) {
    return End(sequence, status, Finish(), now);
  }
  sequence.stream().PushRow(
      {.position = position, .logits = std::vector<float>(logits.begin(), logits.end())});
  if (const std::optional<Finish> finish = sequence.MarkRowDelivered(); finish.has_value()) {
    End(sequence, absl::OkStatus(), *finish, now);
  }
}

void EngineLoop::CountTokens(const Chunk& chunk) {
  const bool decode =
      chunk.num_tokens == 1 && chunk.first_position >= chunk.sequence->prompt_tokens();
  (decode ? report_.stats.decode_tokens : report_.stats.prefill_tokens) += chunk.num_tokens;
}

void EngineLoop::MeasureDrain(const StepPlan& plan, absl::Duration elapsed) {
  // With nothing left waiting the queue's pace is that of the arrivals, not the engine's.
  if (never_admitted_ == 0) return;
  double requests = 0;
  double tokens = 0;
  for (const Sequence* sequence : plan.admitted) {
    if (sequence->preemptions() > 0) continue;
    requests += 1;
    tokens += static_cast<double>(sequence->prompt_tokens());
  }
  drained_requests_.Record(requests, elapsed);
  drained_tokens_.Record(tokens, elapsed);
  queue_->SetDrainRate({.requests_per_second = drained_requests_.per_second(),
                        .prompt_tokens_per_second = drained_tokens_.per_second()});
}

void EngineLoop::End(Sequence& sequence, const absl::Status& status, const Finish& finish,
                     absl::Time now) {
  scheduler_.Remove(sequence);
  if (!sequence.admitted()) LeaveQueue(sequence);
  sequence.stream().PushEnd(sequence.End(status, finish, now));
  report_.streams.push_back(sequence.request().stream);
  ++report_.ended;
  ++report_.stats.finished_requests;
}

void EngineLoop::EndAll(const absl::Status& status) {
  TakeArrivals();
  const absl::Time now = clock_.Now();
  for (const auto& sequence : sequences_) End(*sequence, status, Finish(), now);
  EraseFinished();
  UpdateStats();
}

void EngineLoop::EraseFinished() {
  std::erase_if(sequences_, [](const std::unique_ptr<Sequence>& sequence) {
    return sequence->state() == SequenceState::kFinished;
  });
  if (sequences_.empty()) TLM_CHECK(pool_.used_blocks() == 0);
}

void EngineLoop::UpdateStats() {
  EngineStats& stats = report_.stats;
  stats.running_requests = scheduler_.running();
  stats.waiting_requests = scheduler_.waiting() - never_admitted_;
  stats.kv_blocks_used = pool_.used_blocks();
  stats.kv_blocks_total = pool_.total_blocks();
  stats.preemptions = scheduler_.preemptions();
  stats.drained_requests_per_second = drained_requests_.per_second();
  stats.drained_prompt_tokens_per_second = drained_tokens_.per_second();
}

absl::Time EngineLoop::NextDeadline() const {
  absl::Time earliest = absl::InfiniteFuture();
  for (const auto& sequence : sequences_) {
    earliest = std::min(earliest, sequence->request().deadline);
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
