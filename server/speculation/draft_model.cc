#include "server/speculation/draft_model.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/kv_cache/block_table.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

// Returns how many of the first `tokens` need not be computed again; the last one must be, as its
// logits are not stored.
int64_t Reusable(std::span<const int32_t> computed, std::span<const int32_t> tokens) {
  if (tokens.empty()) return 0;
  const auto before_last = tokens.first(tokens.size() - 1);
  return std::ranges::mismatch(computed, before_last).in2 - before_last.begin();
}

}  // namespace

int32_t DraftModel::Work::token(int64_t position) const {
  const auto i = static_cast<size_t>(position);
  const size_t given = guess->tokens.size();
  return i < given ? guess->tokens[i] : guess->draft[i - given];
}

DraftModel::DraftModel(LanguageModel& model, int64_t max_prefill_tokens)
    : model_(model), max_prefill_tokens_(max_prefill_tokens), pool_(model.num_kv_blocks()) {
  TLM_CHECK(max_prefill_tokens >= 1);
}

int64_t DraftModel::Lag(int64_t sequence, std::span<const int32_t> tokens) const {
  const auto found = states_.find(sequence);
  const int64_t reusable = found == states_.end() ? 0 : Reusable(found->second.tokens, tokens);
  return static_cast<int64_t>(tokens.size()) - reusable;
}

absl::Status DraftModel::Propose(std::span<Guess> guesses) {
  ++calls_;
  std::vector<Work> work = Plan(guesses);
  while (BuildBatch(work)) {
    const absl::StatusOr<BatchResult> result = model_.Forward(batch_);
    if (!result.ok()) {
      while (!states_.empty()) Forget(states_.begin()->first);
      for (Guess& guess : guesses) guess.draft.clear();
      return result.status();
    }
    TakeResults(work, *result);
  }
  return absl::OkStatus();
}

void DraftModel::Forget(int64_t sequence) {
  const auto found = states_.find(sequence);
  if (found == states_.end()) return;
  Truncate(found->second, 0);
  states_.erase(found);
}

std::vector<DraftModel::Work> DraftModel::Plan(std::span<Guess> guesses) {
  std::vector<std::pair<int64_t, Guess*>> by_after;
  for (Guess& guess : guesses) {
    guess.draft.clear();
    by_after.emplace_back(Lag(guess.sequence, guess.tokens), &guess);
  }
  std::ranges::stable_sort(by_after, {}, &std::pair<int64_t, Guess*>::first);
  std::vector<Work> plan;
  int64_t budget = max_prefill_tokens_;
  for (const auto& [behind, guess] : by_after) {
    const int64_t tokens = std::ssize(guess->tokens);
    const int64_t most = std::min(guess->max_tokens, model_.limits().max_context - tokens);
    State& state = states_[guess->sequence];
    TLM_CHECK(state.call < calls_);
    state.call = calls_;
    const int64_t blocks = Obtainable(state, BlocksFor(tokens - 1 + most));
    if (tokens == 0 || most < 1 || blocks < BlocksFor(tokens)) {
      Forget(guess->sequence);
      continue;
    }
    Truncate(state, Reusable(state.tokens, guess->tokens));
    const int64_t missing = tokens - 1 - state.computed();
    int64_t until = missing > budget ? state.computed() + budget : tokens - 1 + most;
    until = std::min(until, blocks * kBlockTokens);
    budget -= std::min(missing, budget);
    Grow(state, until);
    plan.push_back({.guess = guess, .state = &state, .until = until});
  }
  return plan;
}

void DraftModel::Truncate(State& state, int64_t tokens) {
  state.tokens.resize(static_cast<size_t>(tokens));
  for (; state.num_blocks() > BlocksFor(tokens); state.blocks.pop_back()) {
    pool_.Release(state.blocks.back());
  }
}

int64_t DraftModel::Obtainable(const State& state, int64_t wanted) const {
  int64_t blocks = pool_.available_blocks() + state.num_blocks();
  if (blocks >= wanted) return wanted;
  for (const auto& [sequence, other] : states_) {
    if (other.call < calls_) blocks += other.num_blocks();
  }
  return std::min(blocks, wanted);
}

void DraftModel::Grow(State& state, int64_t tokens) {
  const int64_t missing = std::max<int64_t>(BlocksFor(tokens) - state.num_blocks(), 0);
  while (pool_.available_blocks() < missing) ForgetOldest();
  TLM_CHECK(pool_.Allocate(missing, &state.blocks));
}

void DraftModel::ForgetOldest() {
  const auto oldest =
      std::ranges::min_element(states_, {}, [](const auto& state) { return state.second.call; });
  TLM_CHECK(oldest->second.call < calls_);
  Forget(oldest->first);
}

bool DraftModel::BuildBatch(std::span<Work> work) {
  const BatchLimits& limits = model_.limits();
  batch_.Clear();
  for (Work& item : work) {
    const int64_t first = item.state->computed();
    const int64_t left = std::min(item.until, item.tokens()) - first;
    item.chunk = std::min(left, limits.max_tokens - batch_.tokens());
    item.draws = item.chunk > 0 && first + item.chunk == item.tokens();
    if (batch_.sequences == limits.max_sequences ||
        (item.draws && batch_.rows() == limits.max_logits_rows)) {
      item.chunk = 0;
    }
    if (item.chunk == 0) continue;
    ++batch_.sequences;
    batch_.max_blocks = std::max(batch_.max_blocks, item.state->num_blocks());
    AppendChunk(item);
  }
  int64_t row = 1;
  for (const Work& item : work) {
    if (item.chunk == 0) continue;
    std::vector<int32_t>& tables = batch_.block_tables;
    tables.insert(tables.end(), item.state->blocks.begin(), item.state->blocks.end());
    tables.resize(static_cast<size_t>(row++ * batch_.max_blocks));
  }
  return batch_.sequences > 0;
}

void DraftModel::AppendChunk(const Work& work) {
  const Guess& guess = *work.guess;
  const int64_t first = work.state->computed();
  for (int64_t position = first; position < first + work.chunk; ++position) {
    batch_.token_ids.push_back(work.token(position));
    batch_.positions.push_back(static_cast<int32_t>(position));
    batch_.sequence_of.push_back(static_cast<int32_t>(batch_.sequences - 1));
  }
  if (!work.draws) return;
  batch_.jobs.push_back({.row = static_cast<int32_t>(batch_.rows()),
                         .params = guess.sampling,
                         .history = guess.history,
                         .key = {.output_index = guess.output_index,
                                 .position = static_cast<uint64_t>(work.tokens())},
                         .draft = guess.draft});
  batch_.logits_rows.push_back(static_cast<int32_t>(batch_.tokens() - 1));
}

void DraftModel::TakeResults(std::span<Work> work, const BatchResult& result) {
  auto token = result.tokens.begin();
  for (Work& item : work) {
    State& state = *item.state;
    for (const int64_t end = state.computed() + item.chunk; state.computed() < end;) {
      state.tokens.push_back(item.token(state.computed()));
    }
    if (item.chunk == 0 || !item.draws) continue;
    if (token->ok()) {
      item.guess->draft.push_back((*token)->id);
    } else {
      item.until = state.computed();  // its logits or parameters allow no token
    }
    ++token;
  }
}

}  // namespace tlm
