// The part of EngineLoop that knows of guesses: which sequences get drafts, and what became of
// them.
#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "server/batching/engine_loop.h"

namespace tlm {
namespace {

// It is on its way to a place in a step, or to its first token.
bool Waits(const Sequence& sequence) {
  if (sequence.state() == SequenceState::kWaiting) return sequence.Room() > 0;
  return sequence.state() == SequenceState::kPrefilling && sequence.remaining() > 0;
}

// The most tokens of a draft for it: the last row gives one token more.
int64_t MaxDraft(const Sequence& sequence, int64_t max_draft_tokens, int64_t max_context) {
  if (sequence.verifies() || sequence.branches() > 0 || sequence.remaining() != 1) return 0;
  const GenerateWork& work = *sequence.request().generate();
  const int64_t length = static_cast<int64_t>(sequence.tokens().size());
  return std::min({max_draft_tokens, work.max_draft_tokens,
                   work.stop.max_new_tokens - sequence.generated_tokens() - 1,
                   max_context - length - 1, sequence.Room() - 1});
}

}  // namespace

void EngineLoop::GuessTokens() {
  if (options_.speculation == Speculation::kOff || !FindGuessers()) return;
  std::erase_if(guessers_, [](const Guesser& guesser) { return guesser.sequence->in_flight(); });
  const std::vector<int64_t> lengths = ChooseLengths();
  for (size_t i = 0; i < guessers_.size(); ++i) {
    std::vector<int32_t>& tokens = guessers_[i].draft.tokens;
    tokens.resize(static_cast<size_t>(lengths[i]));
    guessers_[i].sequence->SetDraft(std::move(tokens));
  }
}

// Sets guessers_ and decoding_; false where none may guess: drafts would make those wait longer
// that wait already.
bool EngineLoop::FindGuessers() {
  guessers_.clear();
  decoding_ = 0;
  for (const auto& sequence : sequences_) {
    if (Waits(*sequence) && options_.speculation == Speculation::kAuto) return false;
    if (sequence->state() != SequenceState::kDecoding) continue;
    ++decoding_;
    const int64_t max_tokens =
        MaxDraft(*sequence, options_.max_draft_tokens, model_.limits().max_context);
    if (max_tokens <= 0) continue;
    if (sequence->lookup() == nullptr) {
      sequence->SetLookup(std::make_unique<TokenLookup>(sequence->prompt_tokens(), matches_));
    }
    sequence->lookup()->Extend(sequence->tokens());
    Draft draft = sequence->lookup()->Propose(sequence->tokens(), max_tokens);
    if (draft.tokens.empty()) continue;
    guessers_.push_back({.sequence = sequence.get(), .draft = std::move(draft)});
  }
  return !guessers_.empty();
}

std::vector<int64_t> EngineLoop::ChooseLengths() {
  std::vector<DraftCandidate> candidates;
  for (const Guesser& guesser : guessers_) candidates.push_back({.chances = guesser.draft.chances});
  if (options_.speculation == Speculation::kAlways) {
    std::vector<int64_t> lengths;
    for (const DraftCandidate& candidate : candidates) {
      lengths.push_back(static_cast<int64_t>(candidate.chances.size()));
    }
    return lengths;
  }
  const int64_t max_tokens =
      std::min(options_.max_batch_tokens, model_.limits().max_logits_rows) - decoding_;
  return ChooseDraftLengths(candidates, decoding_, costs_, absl::ZeroDuration(),
                            std::max(max_tokens, int64_t{0}));
}

// Whether the next step is to wait for the results of this one: they tell where a draft ends, or it
// is to have drafts behind them, judged by those that the tokens known now would give.
bool EngineLoop::WouldGuess() {
  if (options_.speculation == Speculation::kOff) return false;
  const bool drafting = std::any_of(sequences_.begin(), sequences_.end(), [](const auto& sequence) {
    return sequence->draft_in_flight() > 0;
  });
  if (drafting) return true;
  if (!FindGuessers()) return false;
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
  if (sequence.state() != SequenceState::kFinished) sequence.TrimBlocks(pool_);
}

void EngineLoop::RecordCosts(const StepPlan& plan, absl::Duration elapsed) {
  int64_t tokens = 0;
  for (const Chunk& chunk : plan.chunks) {
    if (!chunk.decode) return;
    tokens += chunk.num_tokens;
  }
  costs_.Record(tokens, elapsed);
}

}  // namespace tlm
