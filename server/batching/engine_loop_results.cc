// The second half of EngineLoop's step: uses logits and tokens.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "server/batching/engine_loop.h"

namespace tlm {
namespace {

// Rejects rows that sampling would refuse: sound arithmetic cannot have produced them.
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

// The jobs of a row have the same mask. If no token is allowed after guesses, the row is computed
// again with the sequence's own mask, which decides how the output ends.
bool IsLate(const RowResults& row) {
  return std::any_of(row.tokens.begin(), row.tokens.end(), [&row](const auto& token) {
    const SamplingJob& job = row.jobs.front();
    return absl::IsUnavailable(token.status()) ||
           (absl::IsInvalidArgument(token.status()) && job.mask != nullptr && !job.draft.empty());
  });
}

}  // namespace

void EngineLoop::TakeResults(StepResults& results, absl::Time now) {
  for (const Chunk& chunk : results.plan().chunks) {
    Sequence& sequence = *chunk.sequence;
    const int64_t accepted = sequence.speculation().accepted;
    if (chunk.num_rows > 0 && sequence.state() != SequenceState::kFinished) {
      report_.streams.push_back(sequence.request().stream);
    }
    for (int64_t i = 0; i < chunk.num_rows; ++i) {
      const RowResults row = results.NextRow();
      // The sequence ended while the step computed, or an earlier row made this one surplus.
      if (sequence.state() == SequenceState::kFinished || sequence.rows_in_flight() == 0) continue;
      TakeRow(sequence, row, now);
    }
    if (chunk.num_draft > 0) EndDraft(sequence, chunk, sequence.speculation().accepted - accepted);
  }
}

void EngineLoop::TakeRow(Sequence& sequence, const RowResults& row, absl::Time now) {
  if (IsLate(row)) return WaitForMask(sequence);
  const int64_t tokens = sequence.WantedPosition(0) + 1;
  const RowResult finish = UseRow(sequence, row, now);
  if (!finish.ok()) return End(sequence, finish.status(), Finish(), now);
  Publish(sequence, tokens);
  if (finish->has_value()) End(sequence, absl::OkStatus(), **finish, now);
}

void EngineLoop::Publish(Sequence& sequence, int64_t tokens) {
  if (cache_.has_value()) sequence.PublishBlocks(tokens, *cache_);
}

EngineLoop::RowResult EngineLoop::UseRow(Sequence& sequence, const RowResults& row,
                                         absl::Time now) {
  if (sequence.delivers_rows()) return DeliverRow(sequence, row.logits);
  if (!sequence.generates()) return ScoreContinuations(sequence, row.logits);
  if (row.jobs.empty()) return ScorePromptToken(sequence, row.logits);
  return sequence.branches() > 0 ? TakeFirstTokens(sequence, row, now)
                                 : TakeToken(sequence, row, now);
}

EngineLoop::RowResult EngineLoop::DeliverRow(Sequence& sequence, std::span<const float> logits) {
  const int64_t position = sequence.WantedPosition(0);
  TLM_RETURN_IF_ERROR(CheckLogits(logits, position));
  sequence.stream().PushRow(
      {.position = position, .logits = std::vector<float>(logits.begin(), logits.end())});
  return sequence.MarkRowDelivered();
}

EngineLoop::RowResult EngineLoop::ScorePromptToken(Sequence& sequence,
                                                   std::span<const float> logits) {
  const int64_t scored = sequence.WantedPosition(0) + 1;
  TLM_RETURN_IF_ERROR(
      PushScore(sequence, scored, sequence.tokens()[static_cast<size_t>(scored)], logits));
  return sequence.MarkRowDelivered();
}

EngineLoop::RowResult EngineLoop::ScoreContinuations(Sequence& sequence,
                                                     std::span<const float> logits) {
  const int64_t scored = sequence.WantedPosition(0) + 1;
  if (scored > sequence.prompt_tokens()) {
    TLM_RETURN_IF_ERROR(PushScore(sequence, sequence.continuation(),
                                  sequence.tokens()[static_cast<size_t>(scored)], logits));
    return sequence.MarkRowDelivered();
  }
  const ScoreWork& work = *sequence.request().score();
  std::vector<int32_t> firsts;
  for (const std::vector<int32_t>& ids : work.continuations) firsts.push_back(ids.front());
  TLM_ASSIGN_OR_RETURN(std::vector<SampledToken> tokens,
                       sampler_.ScoreGiven(logits, firsts, work.top));
  int64_t index = 0;
  for (SampledToken& token : tokens) {
    sequence.stream().PushScored({.index = index++, .token = std::move(token)});
  }
  return sequence.MarkRowDelivered();
}

absl::Status EngineLoop::PushScore(Sequence& sequence, int64_t index, int32_t id,
                                   std::span<const float> logits) {
  const Request& request = sequence.request();
  const uint32_t top =
      request.score() != nullptr ? request.score()->top : request.generate()->score.top;
  TLM_ASSIGN_OR_RETURN(SampledToken token, sampler_.ScoreGiven(logits, id, top));
  sequence.stream().PushScored({.index = index, .token = std::move(token)});
  return absl::OkStatus();
}

void EngineLoop::RecordToken(Sequence& sequence, absl::Time now) {
  const absl::Duration gap = sequence.MarkToken(now);
  if (metrics_ != nullptr) metrics_->AddToken(gap);
}

EngineLoop::RowResult EngineLoop::TakeToken(Sequence& sequence, const RowResults& row,
                                            absl::Time now) {
  const auto sampled = std::find_if(row.jobs.begin(), row.jobs.end(), [&](const SamplingJob& job) {
    return job.key.output_index == sequence.request().generate()->output_index;
  });
  TLM_CHECK(sampled != row.jobs.end());
  absl::StatusOr<SampledToken>& token = row.tokens[static_cast<size_t>(sampled - row.jobs.begin())];
  if (sequence.mask() != nullptr && absl::IsInvalidArgument(token.status())) {
    return Finish{sequence.mask()->whole() ? FinishReason::kConstraintComplete
                                           : FinishReason::kConstraint};
  }
  TLM_RETURN_IF_ERROR(token.status());
  if (sequence.generated_tokens() == 0) sequence.MarkFirstToken(now);
  if (!sequence.verifies()) RecordToken(sequence, now);
  const std::optional<Finish> finish = sequence.Append(token->id, model_.limits().max_context);
  if (sequence.mask() != nullptr && !finish.has_value()) AdvanceMask(sequence, token->id);
  sequence.stream().PushToken(*std::move(token));
  return finish;
}

EngineLoop::RowResult EngineLoop::TakeFirstTokens(Sequence& parent, const RowResults& row,
                                                  absl::Time now) {
  const int64_t tokens = parent.WantedPosition(0) + 1;
  std::vector<std::unique_ptr<Sequence>> branches = parent.TakeBranches();
  const RowResult result = TakeToken(parent, row, now);
  // Publishes before the blocks are shared, because publishing may replace them.
  if (result.ok()) Publish(parent, tokens);
  for (auto& branch : branches) StartBranch(parent, std::move(branch), row, now);
  return result;
}

void EngineLoop::StartBranch(Sequence& parent, std::unique_ptr<Sequence> taken,
                             const RowResults& row, absl::Time now) {
  Sequence& branch = *taken;
  sequences_.push_back(std::move(taken));
  TakeRow(branch, row, now);
  report_.streams.push_back(branch.request().stream);
  if (branch.state() == SequenceState::kFinished) return;
  const std::optional<BlockCopy> copy = scheduler_.AddBranch(parent, branch);
  if (!copy.has_value()) return;
  // Copies at once, because parent and branch both write after their shared tokens. What the parent
  // may have written there already is overwritten before it is read.
  const absl::Status copied = model_.CopyKvBlock(copy->from, copy->to);
  if (!copied.ok()) End(branch, DeviceFault(copied), Finish(), now);
}

}  // namespace tlm
