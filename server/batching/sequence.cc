#include "server/batching/sequence.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

int64_t FirstRow(const Request& request, int64_t tokens) {
  if (request.forward() != nullptr) return 0;
  if (request.generate() != nullptr && request.generate()->score_prompt) return 0;
  return tokens - 1;
}

Request BranchRequest(const Request& request, size_t branch) {
  Request copy = request;
  copy.stream = request.branch_streams[branch];
  copy.branch_streams.clear();
  copy.generate()->output_index += static_cast<uint32_t>(branch) + 1;
  return copy;
}

}  // namespace

SequenceTimes SequenceTimes::ForBranch() const {
  SequenceTimes branch(arrival_);
  branch.started_ = started_;
  return branch;
}

absl::Duration SequenceTimes::Start(absl::Time now) {
  started_ = now;
  return now - arrival_;
}

absl::Duration SequenceTimes::Token(absl::Time now) {
  const absl::Duration gap = now - last_token_.value_or(now);
  last_token_ = now;
  return gap;
}

void SequenceTimes::ReportTo(absl::Time now, StreamEnd& end) const {
  const absl::Time started = started_.value_or(now);
  const absl::Time first_result = first_token_.value_or(now);
  end.queue_time = started - arrival_;
  end.prefill_time = first_result - started;
  end.decode_time = now - first_result;
}

Sequence::Sequence(Request&& request, int64_t number)
    : request_(std::move(request)),
      number_(number),
      request_number_(number),
      input_tokens_(InputTokens(request_)),
      least_work_(LeastWorkOf(request_, /*cached_tokens=*/0)),
      tokens_(std::exchange(request_.prompt, {})),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      blocks_({.tenant = request_.tenant,
               .salt = request_.cache.salt,
               .bypass = request_.cache.bypass}),
      times_(request_.arrival) {
  if (generates()) {
    const std::vector<int32_t>& generated = request_.generate()->generated;
    if (request_.generate()->sampling.has_penalties()) {
      history_.AddPrompt(tokens_);
      for (const int32_t token : generated) history_.AddOutput(token);
    }
    tokens_.insert(tokens_.end(), generated.begin(), generated.end());
    draft_ = request_.generate()->claimed;
  }
  next_row_ = FirstRow(request_, Length());
}

Sequence::Sequence(const Sequence& parent, size_t branch)
    : request_(BranchRequest(parent.request_, branch)),
      number_(parent.number_ + static_cast<int64_t>(branch) + 1),
      request_number_(parent.number_),
      input_tokens_(parent.input_tokens_),
      least_work_(parent.least_work_),
      tokens_(parent.tokens_),
      prompt_tokens_(parent.prompt_tokens_),
      history_(parent.history_),
      mask_(parent.mask_ == nullptr
                ? nullptr
                : std::make_shared<OutputMask>(*request_.generate()->constraint,
                                               parent.mask_->options(), parent.mask_->whole())),
      blocks_(BlockTable::BranchOf(parent.blocks_)),
      next_row_(parent.next_row_),
      queued_(false),
      times_(parent.times_.ForBranch()) {}

SequenceState Sequence::state() const {
  if (finished_) return SequenceState::kFinished;
  if (!running_) return SequenceState::kWaiting;
  if (!generates() || remaining() == 0) return SequenceState::kPrefilling;
  const bool forced = forced_from_ >= 0 && computed_ >= forced_from_;
  const bool guessed = !draft().empty() && computed_ == Length() - 1 && !verifies();
  return remaining() == 1 || forced || guessed ? SequenceState::kDecoding
                                               : SequenceState::kPrefilling;
}

int64_t Sequence::target() const {
  if (generates()) return Length() + tokens_ahead_ + DraftAhead();
  if (delivers_rows()) return request_.forward()->positions.back() + 1;
  return Length() == prompt_tokens_ ? Length() : Length() - 1;
}

int64_t Sequence::remaining() const {
  if (awaits_mask_) return 0;
  // The next position is unknown until the draft is judged.
  if (rows_in_flight_ > 0 && !draft().empty()) return 0;
  if (rows_in_flight_ > 0) {
    const int64_t end =
        delivers_rows() ? static_cast<int64_t>(request_.forward()->positions.size()) : target();
    if (NextRow() >= end) return 0;
  }
  return target() - computed_;
}

int64_t Sequence::cache_tokens() const {
  if (request_.score() == nullptr) return target();
  size_t longest = 0;
  for (const std::vector<int32_t>& ids : request_.score()->continuations) {
    longest = std::max(longest, ids.size());
  }
  return prompt_tokens_ + static_cast<int64_t>(longest) - 1;
}

void Sequence::MarkComputed(int64_t count) {
  TLM_CHECK(count <= remaining());
  const int64_t end = computed_ + count;
  // Positions before computed_ were computed or cached; those before furthest_ were counted.
  const int64_t counted = std::max(computed_, furthest_);
  computed_prompt_tokens_ += std::max(std::min(end, prompt_tokens_) - counted, int64_t{0});
  computed_ = end;
  furthest_ = std::max(furthest_, end);
  ++steps_;
}

void Sequence::MarkLaunched(int64_t count, int64_t max_context) {
  const int64_t rows = RowsWanted(count);
  const int64_t drafted = DraftTokens(count);
  MarkComputed(count);
  ++steps_in_flight_;
  rows_in_flight_ += rows;
  draft_in_flight_ = drafted;
  if (!verifies()) {
    draft_.resize(draft_begin_ + static_cast<size_t>(drafted));
    speculation_.drafted += drafted;
  }
  if (!draft().empty()) return;
  const int64_t tokens = tokens_in_flight();
  if (tokens == 0) return;
  const bool last = generated_tokens() + tokens >= request_.generate()->stop.max_new_tokens ||
                    Length() + tokens >= max_context;
  tokens_ahead_ = last ? tokens - 1 : tokens;
}

int64_t Sequence::tokens_in_flight() const {
  if (!generates()) return 0;
  // The row of the last token and all later rows give tokens; earlier rows score the prompt.
  return std::max(NextRow() - (Length() - 1), int64_t{0});
}

int64_t Sequence::RowsWanted(int64_t count) const {
  const int64_t end = computed_ + count;
  if (!delivers_rows()) return std::max(end - NextRow(), int64_t{0});
  const auto wanted =
      std::span(request_.forward()->positions).subspan(static_cast<size_t>(NextRow()));
  return std::lower_bound(wanted.begin(), wanted.end(), end) - wanted.begin();
}

int64_t Sequence::LongestChunk(int64_t max_tokens, int64_t max_rows) const {
  const int64_t count = std::min(remaining(), max_tokens);
  if (RowsWanted(count) <= max_rows) return count;
  return WantedPosition(rows_in_flight_ + max_rows) - computed_;
}

int64_t Sequence::WantedPosition(int64_t n) const {
  if (!delivers_rows()) return next_row_ + n;
  return request_.forward()->positions[static_cast<size_t>(next_row_ + n)];
}

std::span<const int32_t> Sequence::BannedTokens(int64_t position) const {
  if (position - prompt_tokens_ >= request_.generate()->stop.min_new_tokens) return {};
  return request_.generate()->stop.ending_ids.all();
}

int64_t Sequence::DraftAhead() const {
  const int64_t draft = static_cast<int64_t>(this->draft().size());
  return verifies() ? std::max(draft - 1, int64_t{0}) : draft;
}

int64_t Sequence::DraftTokens(int64_t count) const {
  return draft().empty() ? 0 : std::max(computed_ + count - Length(), int64_t{0});
}

void Sequence::SetDraft(std::vector<int32_t> ids, bool by_model) {
  TLM_CHECK(rows_in_flight_ == 0 && !verifies() && branches() == 0);
  draft_ = std::move(ids);
  draft_begin_ = 0;
  by_model_ = by_model;
}

void Sequence::DropDraft() {
  draft_.clear();
  draft_begin_ = 0;
  draft_in_flight_ = 0;
  draft_masks_.reset();
}

bool Sequence::JudgeDraft(int32_t token) {
  if (draft().front() == token) {
    ++draft_begin_;
    if (draft_in_flight_ == 0) return true;
    --draft_in_flight_;
    if (verifies()) return true;
    ++speculation_.accepted;
    ++speculation_.steps_saved;
    return true;
  }
  DropDraft();
  rows_in_flight_ = 0;
  computed_ = std::min(computed_, Length() - 1);  // less if it was preempted meanwhile
  return false;
}

std::optional<Finish> Sequence::Append(int32_t token, int64_t max_context) {
  tokens_.push_back(token);
  next_row_ = Length() - 1;
  rows_in_flight_ = std::max(rows_in_flight_ - 1, int64_t{0});
  tokens_ahead_ = std::max(tokens_ahead_ - 1, int64_t{0});
  if (request_.generate()->sampling.has_penalties()) history_.AddOutput(token);
  const bool refuted = !draft().empty() && !JudgeDraft(token);
  if (verifies() && refuted) return Finish{FinishReason::kRowsComplete};
  const auto finish =
      FinishAt(request_.generate()->stop, generated_tokens(), token, Length(), max_context);
  if (finish.has_value() || !verifies() || !draft().empty()) return finish;
  return Finish{FinishReason::kRowsComplete};
}

bool Sequence::MayAppend(int32_t token) const {
  const auto has = [token](std::span<const int32_t> ids) {
    return std::binary_search(ids.begin(), ids.end(), token);
  };
  const SamplingParams& sampling = request_.generate()->sampling;
  const bool allowed = sampling.allowed_token_ids.empty() || has(sampling.allowed_token_ids);
  return allowed && !has(sampling.banned_token_ids) && !has(BannedTokens(Length()));
}

std::optional<Finish> Sequence::AppendForced(int32_t token, int64_t max_context) {
  TLM_CHECK(rows_in_flight_ == 0 && state() == SequenceState::kDecoding);
  if (!verifies()) DropDraft();  // the step it was made for had no room
  if (remaining() == 1) forced_from_ = computed_;
  ++forced_tokens_;
  return Append(token, max_context);
}

void Sequence::CancelFirstRow() {
  TLM_CHECK(rows_in_flight_ >= 1);
  rows_in_flight_ = 0;
  tokens_ahead_ = 0;
  draft_in_flight_ = 0;
  if (!verifies()) DropDraft();
  computed_ = std::min(computed_, Length() - 1);  // less if it was preempted meanwhile
}

std::optional<Finish> Sequence::FinishedBefore(int64_t max_context) const {
  if (!generates() || generated_tokens() == 0) return std::nullopt;
  return FinishAt(request_.generate()->stop, generated_tokens(), tokens_.back(), Length(),
                  max_context);
}

std::optional<Finish> Sequence::MarkRowDelivered() {
  ++next_row_;
  rows_in_flight_ = std::max(rows_in_flight_ - 1, int64_t{0});
  if (request_.score() != nullptr) return next_row_ < target() ? std::nullopt : BeginContinuation();
  if (!delivers_rows()) return std::nullopt;  // sampling is still to come
  if (next_row_ < static_cast<int64_t>(request_.forward()->positions.size())) return std::nullopt;
  return Finish{FinishReason::kRowsComplete};
}

std::optional<Finish> Sequence::BeginContinuation() {
  const auto& all = request_.score()->continuations;
  const bool first = Length() == prompt_tokens_;
  const auto next = std::find_if(all.begin() + (first ? 0 : continuation_ + 1), all.end(),
                                 [](const std::vector<int32_t>& ids) { return ids.size() > 1; });
  if (next == all.end()) return Finish{FinishReason::kRowsComplete};
  continuation_ = next - all.begin();
  tokens_.resize(static_cast<size_t>(prompt_tokens_));
  tokens_.insert(tokens_.end(), next->begin(), next->end());
  computed_ = std::min(computed_, prompt_tokens_);  // less if it was preempted meanwhile
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

int64_t Sequence::CacheableBlocks() const {
  int64_t wanted = NextRow();
  if (delivers_rows()) {
    const std::vector<int64_t>& positions = request_.forward()->positions;
    wanted = positions[std::min(static_cast<size_t>(wanted), positions.size() - 1)];
  }
  if (request_.score() != nullptr) wanted = std::min(wanted, prompt_tokens_);
  return wanted / kBlockTokens;
}

int64_t Sequence::CachedTokens(const PrefixCache& cache) {
  return blocks_.CachedTokens(cache, tokens_, CacheableBlocks());
}

void Sequence::AdoptPrefix(PrefixCache& cache) {
  TLM_CHECK(computed_ == 0);
  computed_ = blocks_.Adopt(cache, tokens_, CacheableBlocks());
  if (!started()) cached_prompt_tokens_ = std::min(computed_, prompt_tokens_);
}

void Sequence::PublishBlocks(int64_t tokens, PrefixCache& cache) {
  // Continuations are computed in the same blocks one after the other; the first one also uses the
  // prompt's last block.
  const int64_t kept = request_.score() != nullptr ? prompt_tokens_ : Length();
  blocks_.Publish(cache, tokens_, std::min({tokens, computed_, kept}) / kBlockTokens);
}

bool Sequence::ShareBlocks(const Sequence& parent, BlockPool& pool) {
  if (parent.computed_ < prompt_tokens_) return false;
  if (!blocks_.Share(parent.blocks_, prompt_tokens_, pool)) return false;
  computed_ = prompt_tokens_;
  return true;
}

void Sequence::TrimBlocks(BlockPool& pool) { blocks_.Trim(pool, Length()); }

void Sequence::ReleaseBlocks(BlockPool& pool) {
  blocks_.Release(pool);
  if (rows_in_flight_ == 0 && !verifies()) DropDraft();
  computed_ = 0;
  forced_from_ = -1;
}

StreamEnd Sequence::End(const absl::Status& status, const Finish& finish, absl::Time now) {
  TLM_CHECK(!finished_);
  finished_ = true;
  StreamEnd end;
  end.status = status;
  times_.ReportTo(now, end);
  end.reason = finish.reason;
  end.matched_token = finish.matched_token;
  const bool is_branch = number_ != request_number_;
  end.computed_prompt_tokens = is_branch ? 0 : computed_prompt_tokens_;
  end.kv_blocks_peak = blocks_.peak();
  end.preemptions = preemptions_;
  end.steps = steps_ - steps_in_flight_;
  end.forced_tokens = forced_tokens_;
  end.speculation = speculation_;
  // The last token is never computed, whether it was sampled or forced.
  if (forced_tokens_ > 0) end.uncomputed_tokens = std::max(Length() - 1 - furthest_, int64_t{0});
  return end;
}

StreamEnd Sequence::BranchEnd(const absl::Status& status, absl::Time now) const {
  StreamEnd end;
  end.status = status;
  times_.ForBranch().ReportTo(now, end);
  return end;
}

}  // namespace tlm
