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

// The wall clock may be set back between two readings.
absl::Duration Elapsed(absl::Time from, absl::Time to) {
  return std::max(to - from, absl::ZeroDuration());
}

}  // namespace

int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

Sequence::Sequence(Request&& request, int64_t number)
    : request_(std::move(request)),
      number_(number),
      tokens_(std::exchange(request_.prompt, {})),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      ending_ids_(EndingIds(request_)) {}

SequenceState Sequence::state() const {
  if (finished_) return SequenceState::kFinished;
  if (!running_) return SequenceState::kWaiting;
  return generates() && remaining() == 1 ? SequenceState::kDecoding : SequenceState::kPrefilling;
}

int64_t Sequence::target() const {
  return generates() ? Length() : request_.forward->positions.back() + 1;
}

void Sequence::MarkComputed(int64_t count) {
  TLM_CHECK(count <= remaining());
  computed_ += count;
  ++steps_;
  furthest_ = std::max(furthest_, computed_);
}

int64_t Sequence::RowsWanted(int64_t count) const {
  if (generates()) return count == remaining() ? 1 : 0;
  const std::span<const int64_t> wanted = wanted_positions();
  return std::lower_bound(wanted.begin(), wanted.end(), computed_ + count) - wanted.begin();
}

int64_t Sequence::LongestChunk(int64_t max_tokens, int64_t max_rows) const {
  const int64_t count = std::min(remaining(), max_tokens);
  if (generates()) return max_rows > 0 || count < remaining() ? count : count - 1;
  const std::span<const int64_t> wanted = wanted_positions();
  if (max_rows >= static_cast<int64_t>(wanted.size())) return count;
  return std::min(count, wanted[static_cast<size_t>(max_rows)] - computed_);
}

std::span<const int64_t> Sequence::wanted_positions() const {
  return std::span<const int64_t>(request_.forward->positions).subspan(next_row_);
}

std::span<const int32_t> Sequence::banned_tokens() const {
  if (generated_tokens() >= request_.generate->stop.min_new_tokens) return {};
  return ending_ids_;
}

std::optional<Finish> Sequence::Append(int32_t token, int64_t max_context) {
  tokens_.push_back(token);
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
  if (!wanted_positions().empty()) return std::nullopt;
  return Finish{FinishReason::kRowsComplete};
}

bool Sequence::Grow(BlockPool& pool, int64_t tokens) {
  const int64_t held = static_cast<int64_t>(blocks_.size());
  const int64_t missing = BlocksFor(tokens) - held;
  if (missing <= 0) return true;
  if (!pool.Allocate(missing, &blocks_)) return false;
  blocks_peak_ = std::max(blocks_peak_, held + missing);
  return true;
}

void Sequence::ReleaseBlocks(BlockPool& pool) {
  for (const BlockId block : blocks_) pool.Release(block);
  blocks_.clear();
  computed_ = 0;
}

absl::Duration Sequence::MarkStarted(absl::Time now) {
  started_ = now;
  return Elapsed(request_.arrival, now);
}

StreamEnd Sequence::End(const absl::Status& status, const Finish& finish, absl::Time now) {
  TLM_CHECK(!finished_);
  finished_ = true;
  const absl::Time started = started_.value_or(now);
  const absl::Time first_result = first_token_.value_or(now);
  return {.status = status,
          .reason = finish.reason,
          .matched_token = finish.matched_token,
          .queue_time = Elapsed(request_.arrival, started),
          .prefill_time = Elapsed(started, first_result),
          .decode_time = Elapsed(first_result, now),
          .computed_prompt_tokens = std::min(furthest_, prompt_tokens_),
          .kv_blocks_peak = blocks_peak_,
          .preemptions = preemptions_,
          .steps = steps_};
}

}  // namespace tlm
