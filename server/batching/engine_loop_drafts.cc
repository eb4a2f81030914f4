// The part of EngineLoop that handles guesses: which sequences get drafts, and how each draft
// ended.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "server/batching/engine_loop.h"

namespace tlm {
namespace {

// The class of a draft model's guesses in MatchRecord.
constexpr int64_t kModelMatch = MatchRecord::kLongest;
// Tokens of a draft that is made only to measure whether drafts pay.
constexpr int64_t kTrialTokens = 2;
// The part of an output's remaining time that a draft model may spend on catching up with it, and
// the most remaining tokens that this time is estimated from.
constexpr double kCatchUpShare = 0.1;
constexpr int64_t kForeseen = 256;

// The sequence waits for a place in a step, or for its first token.
bool Waits(const Sequence& sequence) {
  if (sequence.state() == SequenceState::kWaiting) return sequence.Room() > 0;
  return sequence.state() == SequenceState::kPrefilling && sequence.remaining() > 0;
}

// Returns the most draft tokens for the sequence; the last row gives one token more.
int64_t MaxDraft(const Sequence& sequence, int64_t max_draft_tokens, int64_t max_context) {
  if (sequence.verifies() || sequence.branches() > 0 || sequence.remaining() != 1) return 0;
  const GenerateWork& work = *sequence.request().generate();
  const int64_t length = static_cast<int64_t>(sequence.tokens().size());
  return std::min({max_draft_tokens, work.max_draft_tokens,
                   work.stop.max_new_tokens - sequence.generated_tokens() - 1,
                   max_context - length - 1, sequence.Room() - 1});
}

}  // namespace

void EngineLoop::PrepareDrafts() {
  if (options_.speculation == Speculation::kOff || !FindPendingDrafts()) return;
  std::erase_if(pending_drafts_,
                [](const PendingDraft& pending) { return pending.sequence->in_flight(); });
  std::vector<int64_t> lengths = ChooseLengths();
  AskModel(lengths);
  for (size_t i = 0; i < pending_drafts_.size(); ++i) {
    std::vector<int32_t>& tokens = pending_drafts_[i].draft.tokens;
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(lengths[i])));
    pending_drafts_[i].sequence->SetDraft(std::move(tokens), pending_drafts_[i].by_model);
  }
}

// Sets pending_drafts_ and decoding_. False when no sequence may guess; drafts would delay the
// sequences that wait already.
bool EngineLoop::FindPendingDrafts() {
  pending_drafts_.clear();
  decoding_ = 0;
  for (const auto& sequence : sequences_) {
    if (Waits(*sequence) && options_.speculation == Speculation::kAuto) return false;
    if (sequence->state() != SequenceState::kDecoding) continue;
    ++decoding_;
    AddPendingDraft(*sequence);
  }
  return !pending_drafts_.empty();
}

void EngineLoop::AddPendingDraft(Sequence& sequence) {
  const int64_t max_tokens =
      MaxDraft(sequence, options_.max_draft_tokens, model_.limits().max_context);
  if (max_tokens <= 0) return;
  const OutputMask* const mask = sequence.mask();
  if (mask != nullptr && mask->ready() && !mask->run().empty()) {
    const auto run =
        mask->run().first(std::min(mask->run().size(), static_cast<size_t>(max_tokens)));
    Draft draft{.tokens = {run.begin(), run.end()},
                .chances = std::vector<double>(run.size(), 1.0)};
    pending_drafts_.push_back({.sequence = &sequence, .draft = std::move(draft)});
    return;
  }
  if (sequence.guessing() == nullptr) {
    sequence.SetGuessing(std::make_unique<Sequence::Guessing>(
        Sequence::Guessing{.lookup = TokenLookup(sequence.prompt_tokens(), matches_)}));
  }
  Sequence::Guessing& guessing = *sequence.guessing();
  guessing.lookup.Extend(sequence.tokens());
  Draft draft = guessing.lookup.Propose(sequence.tokens(), max_tokens);
  const double by_model =
      draft_source_ == nullptr ? 0 : guessing.by_model.Chance(kModelMatch, &model_matches_);
  const double by_lookup = draft.tokens.empty() ? 0 : draft.chances.front();
  if (by_lookup >= by_model || !MayAskModel(sequence, max_tokens)) {
    if (draft.tokens.empty()) return;
    pending_drafts_.push_back({.sequence = &sequence, .draft = std::move(draft)});
    return;
  }
  draft = {.tokens = {}, .chances = std::vector<double>(static_cast<size_t>(max_tokens), by_model)};
  pending_drafts_.push_back({.sequence = &sequence, .draft = std::move(draft), .by_model = true});
}

// Catching up must cost little compared with the tokens still to be generated.
bool EngineLoop::MayAskModel(const Sequence& sequence, int64_t max_tokens) {
  if (options_.speculation == Speculation::kAlways) return true;
  const int64_t left =
      sequence.request().generate()->stop.max_new_tokens - sequence.generated_tokens();
  const int64_t behind = draft_source_->Lag(sequence.number(), sequence.tokens());
  if (behind <= max_tokens) return true;
  const int64_t decoding = std::max(scheduler_.decoding(), int64_t{1});
  const absl::Duration time = std::min(left, kForeseen) * costs_.Estimate(decoding) / decoding;
  return draft_costs_.CatchUp(behind) <= kCatchUpShare * time;
}

std::vector<int64_t> EngineLoop::ChooseLengths() const {
  std::vector<int64_t> lengths;
  if (options_.speculation == Speculation::kAlways) {
    for (const PendingDraft& pending : pending_drafts_) {
      lengths.push_back(static_cast<int64_t>(pending.draft.chances.size()));
    }
    return lengths;
  }
  std::vector<DraftCandidate> candidates;
  for (const PendingDraft& pending : pending_drafts_) {
    candidates.push_back({.chances = pending.draft.chances, .by_model = pending.by_model});
  }
  const BatchLimits& limits = model_.limits();
  const int64_t max_tokens = std::min({options_.max_batch_tokens - decoding_,
                                       limits.max_logits_rows - decoding_, limits.max_draft_rows});
  return ChooseDraftLengths(candidates, decoding_, costs_, draft_costs_.Round(),
                            std::max(max_tokens, int64_t{0}));
}

// Makes the drafts of the draft model.
void EngineLoop::AskModel(std::span<int64_t> lengths) {
  std::vector<Guess> guesses;
  std::vector<PendingDraft*> asked;
  int64_t behind = 0;
  int64_t rounds = 0;
  for (size_t i = 0; i < pending_drafts_.size(); ++i) {
    PendingDraft& pending = pending_drafts_[i];
    if (!pending.by_model) continue;
    const Sequence& sequence = *pending.sequence;
    const int64_t missing = draft_source_->Lag(sequence.number(), sequence.tokens());
    if (lengths[i] == 0 && draft_costs_.TakeTrial(missing, kTrialTokens)) {
      lengths[i] = std::min(kTrialTokens, static_cast<int64_t>(pending.draft.chances.size()));
    }
    if (lengths[i] == 0) continue;
    const GenerateWork& work = *sequence.request().generate();
    guesses.push_back({.sequence = sequence.number(),
                       .tokens = sequence.tokens(),
                       .max_tokens = lengths[i],
                       .sampling = &work.sampling,
                       .history = &sequence.history(),
                       .output_index = work.output_index});
    asked.push_back(&pending);
    behind += std::max(missing - 2, int64_t{0});
    rounds = std::max(rounds, lengths[i]);
  }
  if (guesses.empty()) return;
  const absl::Time begin = clock_.Now();
  const absl::Status status = draft_source_->Propose(guesses);
  draft_time_ = clock_.Now() - begin;
  if (!status.ok()) {
    draft_fault_ = status;
    draft_source_ = nullptr;
    return;
  }
  draft_costs_.Record(behind, rounds, draft_time_);
  for (size_t i = 0; i < guesses.size(); ++i) {
    asked[i]->draft.tokens = std::move(guesses[i].draft);
  }
}

// Returns whether the next step must wait for the results of this one: to learn where a draft ends,
// or because drafts will follow these results. The tokens known now predict whether drafts would be
// made.
bool EngineLoop::WouldDraft() {
  if (options_.speculation == Speculation::kOff) return false;
  const bool drafting = std::any_of(sequences_.begin(), sequences_.end(), [](const auto& sequence) {
    return sequence->draft_in_flight() > 0;
  });
  if (drafting) return true;
  if (!FindPendingDrafts()) return false;
  const std::vector<int64_t> lengths = ChooseLengths();
  return std::any_of(lengths.begin(), lengths.end(), [](int64_t length) { return length > 0; });
}

void EngineLoop::SetDraftMasks(const StepPlan& plan) {
  for (const Chunk& chunk : plan.chunks) {
    Sequence& sequence = *chunk.sequence;
    if (chunk.num_rows < 2 || chunk.num_draft == 0 || sequence.mask() == nullptr) continue;
    const auto draft = sequence.draft().first(static_cast<size_t>(chunk.num_rows) - 1);
    auto masks = std::make_shared<DraftMasks>(sequence.shared_mask(),
                                              std::vector<int32_t>(draft.begin(), draft.end()));
    masks_.Add(masks);
    sequence.SetDraftMasks(std::move(masks));
  }
}

void EngineLoop::EndDraft(Sequence& sequence, const Chunk& chunk, int64_t accepted) {
  if (sequence.verifies()) return;
  accepted_ += accepted;
  if (metrics_ != nullptr) metrics_->AddDraft(chunk.num_draft, accepted);
  if (sequence.drafted_by_model()) {
    MatchRecord& own = sequence.guessing()->by_model;
    // After an output's end nothing was judged.
    const bool refuted = accepted < chunk.num_draft && sequence.state() != SequenceState::kFinished;
    for (int64_t i = 0; i < accepted + (refuted ? 1 : 0); ++i) {
      own.Add(kModelMatch, i < accepted);
      model_matches_.Add(kModelMatch, i < accepted);
    }
  }
  if (sequence.state() != SequenceState::kFinished) sequence.TrimBlocks(pool_);
}

void EngineLoop::RecordCosts(const StepPlan& plan, absl::Duration elapsed) {
  const absl::Duration draft_time = std::exchange(draft_time_, absl::ZeroDuration());
  draft_costs_.AddStep(elapsed);
  int64_t tokens = 0;
  for (const Chunk& chunk : plan.chunks) {
    // A forced token costs less than a draft token, whose row is judged.
    if (!chunk.decode || chunk.num_tokens > 1 + chunk.num_draft) return;
    tokens += chunk.num_tokens;
  }
  costs_.Record(tokens, elapsed - draft_time);
}

}  // namespace tlm
