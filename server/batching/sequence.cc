#include "server/batching/sequence.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

std::vector<int32_t> EndingIds(const Request& request) {
  if (!request.generate.has_value()) return {};
  std::vector<int32_t> ids = request.generate->stop.eos_token_ids;
  const std::vector<int32_t>& stop_ids = request.generate->stop.stop_token_ids;
  ids.insert(ids.end(), stop_ids.begin(), stop_ids.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

int64_t FirstRow(const Request& request, int64_t prompt_tokens) {
  if (request.forward.has_value()) return 0;
  if (request.generate.has_value() && request.generate->score_prompt) return 0;
  return prompt_tokens - 1;
}

Request BranchRequest(const Request& request, size_t branch) {
  Request copy = request;
  copy.stream = request.branch_streams[branch];
  copy.branch_streams.clear();
  copy.generate->output_index += static_cast<uint32_t>(branch) + 1;
  return copy;
}

// The wall clock may be set back between two readings.
absl::Duration Elapsed(absl::Time from, absl::Time to) {
  return std::max(to - from, absl::ZeroDuration());
}

}  // namespace

int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

Sequence::Sequence(Request&& request, int64_t number)
    : request_(std::move(request)),
      number_(number),
      request_number_(number),
      input_tokens_(InputTokens(request_)),
      tokens_(std::exchange(request_.prompt, {})),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      ending_ids_(EndingIds(request_)),
      next_row_(FirstRow(request_, prompt_tokens_)) {
  if (generates() && request_.generate->sampling.has_penalties()) history_.AddPrompt(tokens_);
}

Sequence::Sequence(const Sequence& parent, size_t branch)
    : request_(BranchRequest(parent.request_, branch)),
      number_(parent.number_ + static_cast<int64_t>(branch) + 1),
      request_number_(parent.number_),
      input_tokens_(parent.input_tokens_),
      tokens_(parent.tokens_),
      prompt_tokens_(parent.prompt_tokens_),
      ending_ids_(parent.ending_ids_),
      history_(parent.history_),
      next_row_(parent.next_row_),
      queued_(false),
      started_(parent.started_) {}

SequenceState Sequence::state() const {
  if (finished_) return SequenceState::kFinished;
  if (!running_) return SequenceState::kWaiting;
  return generates() && remaining() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
}

int64_t Sequence::target() const {
  if (generates()) return Length();
  if (delivers_rows()) return request_.forward->positions.back() + 1;
  return Length() == prompt_tokens_ ? Length() : Length() - 1;
}

int64_t Sequence::cache_tokens() const {
  if (!request_.score.has_value()) return target();
  size_t longest = 0;
  for (const std::vector<int32_t>& ids : request_.score->continuations) {
    longest = std::max(longest, ids.size());
  }
  return prompt_tokens_ + static_cast<int64_t>(longest) - 1;
}

void Sequence::MarkComputed(int64_t count) {
  TLM_CHECK(count <= remaining());
  computed_ += count;
  ++steps_;
  furthest_ = std::max(furthest_, computed_);
}

int64_t Sequence::RowsWanted(int64_t count) const {
  const int64_t end = computed_ + count;
  if (!delivers_rows()) return std::max(end - next_row_, int64_t{0});
  const auto wanted =
      std::span(request_.forward->positions).subspan(static_cast<size_t>(next_row_));
  return std::lower_bound(wanted.begin(), wanted.end(), end) - wanted.begin();
}

int64_t Sequence::LongestChunk(int64_t max_tokens, int64_t max_rows) const {
  const int64_t count = std::min(remaining(), max_tokens);
  if (RowsWanted(count) <= max_rows) return count;
  return WantedPosition(max_rows) - computed_;
}

int64_t Sequence::WantedPosition(int64_t n) const {
  if (!delivers_rows()) return next_row_ + n;
  return request_.forward->positions[static_cast<size_t>(next_row_ + n)];
}

std::span<const int32_t> Sequence::banned_tokens() const {
  if (generated_tokens() >= request_.generate->stop.min_new_tokens) return {};
  return ending_ids_;
}

std::optional<Finish> Sequence::Append(int32_t token, int64_t max_context) {
  tokens_.push_back(token);
  next_row_ = Length() - 1;
  if (request_.generate->sampling.has_penalties()) history_.AddOutput(token);
  const StopCriteria& stop = request_.generate->stop;
  if (generated_tokens() > stop.min_new_tokens) {
    if (Contains(stop.eos_token_ids, token)) return Finish{FinishReason::kEos, token};
    if (Contains(stop.stop_token_ids, token)) return Finish{FinishReason::kStopToken, token};
  }
  if (generated_tokens() >= stop.max_new_tokens) return Finish{FinishReason::kLength};
  if (Length() >= max_context) return Finish{FinishReason::kContextLength};
  return std::nullopt;
}

std::optional<Finish> Sequence::MarkRowDelivered() {
  ++next_row_;
  if (request_.score.has_value()) return next_row_ < target() ? std::nullopt : BeginContinuation();
  if (!delivers_rows()) return std::nullopt;  // the draw is still to come
  if (next_row_ < static_cast<int64_t>(request_.forward->positions.size())) return std::nullopt;
  return Finish{FinishReason::kRowsComplete};
}

std::optional<Finish> Sequence::BeginContinuation() {
  const auto& all = request_.score->continuations;
  const bool first = Length() == prompt_tokens_;
  const auto next = std::find_if(all.begin() + (first ? 0 : continuation_ + 1), all.end(),
                                 [](const std::vector<int32_t>& ids) { return ids.size() > 1; });
  if (next == all.end()) return Finish{FinishReason::kRowsComplete};
  continuation_ = next - all.begin();
  tokens_.resize(static_cast<size_t>(prompt_tokens_));
  tokens_.insert(tokens_.end(), next->begin(), next->end());
  computed_ = prompt_tokens_;
  next_row_ = prompt_tokens_;
  return std::nullopt;
}

int64_t Sequence::branches() const {
  const auto& streams = request_.branch_streams;
  return static_cast<int64_t>(streams.size()) - std::count(streams.begin(), streams.end(), nullptr);
}

std::vector<std::unique_ptr<Sequence>> Sequence::TakeBranches() {
  std::vector<std::unique_ptr<Sequence>> branches;
  for (size_t i = 0; i < request_.branch_streams.size(); ++i) {
    if (request_.branch_streams[i] == nullptr) continue;
    branches.push_back(std::unique_ptr<Sequence>(new Sequence(*this, i)));
  }
  request_.branch_streams.clear();
  return branches;
}

std::shared_ptr<TokenStream> Sequence::TakeBranchStream(size_t branch) {
  return std::exchange(request_.branch_streams[branch], nullptr);
}

bool Sequence::Grow(BlockPool& pool, int64_t tokens) {
  const int64_t held = static_cast<int64_t>(blocks_.size());
  const int64_t missing = BlocksFor(tokens) - held;
  if (missing <= 0) return true;
  if (!pool.Allocate(missing, &blocks_)) return false;
  blocks_peak_ = std::max(blocks_peak_, held + missing - shared_blocks_);
  return true;
}

bool Sequence::ShareBlocks(const Sequence& parent, BlockPool& pool) {
  TLM_CHECK(blocks_.empty());
  const int64_t full = parent.computed_ / kBlockTokens;
  std::vector<BlockId> own;
  const int64_t rest = BlocksFor(parent.computed_) - full;
  if (!pool.Allocate(rest, &own)) return false;
  blocks_.assign(parent.blocks_.begin(), parent.blocks_.begin() + full);
  for (const BlockId block : blocks_) pool.AddReference(block);
  blocks_.insert(blocks_.end(), own.begin(), own.end());
  shared_blocks_ = full;
  blocks_peak_ = std::max(blocks_peak_, rest);
  computed_ = parent.computed_;
  return true;
}

void Sequence::ReleaseBlocks(BlockPool& pool) {
  for (const BlockId block : blocks_) pool.Release(block);
  blocks_.clear();
  shared_blocks_ = 0;
  computed_ = 0;
}

absl::Duration Sequence::MarkStarted(absl::Time now) {
  started_ = now;
  return Elapsed(request_.arrival, now);
}

StreamEnd Sequence::End(const absl::Status& status, const Finish& finish, absl::Time now) {
  TLM_CHECK(!finished_);
  finished_ = true;
  StreamEnd end = BranchEnd(status, now);
  const absl::Time first_result = first_token_.value_or(now);
  end.reason = finish.reason;
  end.matched_token = finish.matched_token;
  end.prefill_time = Elapsed(started_.value_or(now), first_result);
  end.decode_time = Elapsed(first_result, now);
  const bool is_branch = number_ != request_number_;
  end.computed_prompt_tokens = is_branch ? 0 : std::min(furthest_, prompt_tokens_);
  end.kv_blocks_peak = blocks_peak_;
  end.preemptions = preemptions_;
  end.steps = steps_;
  return end;
}

StreamEnd Sequence::BranchEnd(const absl::Status& status, absl::Time now) const {
  StreamEnd end;
  end.status = status;
  end.queue_time = Elapsed(request_.arrival, started_.value_or(now));
  end.prefill_time = Elapsed(started_.value_or(now), now);
  return end;
}

}  // namespace tlm
