#include "server/rpc/output/output_assembler.h"

#include <algorithm>
#include <utility>

#include "server/rpc/convert/convert.h"
#include "server/rpc/convert/field_error.h"
#include "server/serving/request_limits.h"

namespace tlm {

PromptAssembler::PromptAssembler(int32_t first_id, int64_t prompt_tokens,
                                 const Tokenizer* tokenizer)
    : prompt_tokens_(prompt_tokens), tokenizer_(tokenizer) {
  SampledToken first;
  first.id = first_id;
  tokens_.push_back(std::move(first));
}

void PromptAssembler::Append(ScoredEntry entry) { tokens_.push_back(std::move(entry.token)); }

bool PromptAssembler::NextEvent(v1::GeneratePrompt& event) {
  if (tokens_.empty()) return false;
  event.set_offset(static_cast<uint32_t>(sent_));
  int64_t bytes = 0;
  while (!tokens_.empty() && bytes < kMaxChunkBytes) {
    const SampledToken& token = tokens_.front();
    bytes += TokenInfoBytes(token.id, token.top.size(), tokenizer_);
    FillTokenInfo(token, tokenizer_, *event.add_tokens());
    tokens_.pop_front();
    ++sent_;
  }
  return true;
}

v1::FinishReason ToProto(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEos:
      return v1::FINISH_REASON_EOS;
    case FinishReason::kStopToken:
      return v1::FINISH_REASON_STOP;
    case FinishReason::kContextLength:
      return v1::FINISH_REASON_CONTEXT_LENGTH;
    case FinishReason::kTimeLimit:
      return v1::FINISH_REASON_TIME_LIMIT;
    case FinishReason::kConstraint:
      return v1::FINISH_REASON_CONSTRAINT;
    case FinishReason::kConstraintComplete:
      return v1::FINISH_REASON_CONSTRAINT_COMPLETE;
    case FinishReason::kLength:
    case FinishReason::kRowsComplete:
      break;
  }
  return v1::FINISH_REASON_LENGTH;
}

OutputAssembler::OutputAssembler(const OutputPlan& plan, const GenerateWork& work,
                                 const Tokenizer* tokenizer, int64_t prompt_tokens,
                                 uint64_t call_seed)
    : plan_(plan),
      min_new_tokens_(work.stop.min_new_tokens),
      ending_ids_(work.stop.ending_ids),
      tokenizer_(tokenizer),
      filter_(plan.stop_strings),
      next_position_(prompt_tokens),
      event_position_(prompt_tokens) {
  if (plan_.regions.has_value()) regions_.emplace(*plan_.regions, call_seed);
  if (plan_.text || regions_.has_value() || !plan_.stop_strings.empty()) {
    // Special tokens that are markers must become text, or the regions could not be recognized.
    const bool skips = !plan_.regions.has_value() || !plan_.regions->format.special_markers();
    decoder_.emplace(tokenizer_, skips, plan_.text_position);
  }
}

absl::Status OutputAssembler::Replay(std::span<const int32_t> ids) {
  replayed_tokens_ = static_cast<int64_t>(ids.size());
  for (const int32_t id : ids) {
    SampledToken token;
    token.id = id;
    Append(std::move(token));
  }
  if (!ended() || processed_tokens_ - dropped_tokens_ == replayed_tokens_) return absl::OkStatus();
  return BadField("resume.generated_token_ids",
                  "has {} entries, a stop string ends the output before the last of them",
                  replayed_tokens_);
}

void OutputAssembler::Append(SampledToken token) {
  if (ended()) return;
  if (candidate_.has_value()) Process(*std::exchange(candidate_, std::nullopt));
  if (ended()) return;
  ++completion_tokens_;
  if (ending_ids_.Contains(token.id)) {
    candidate_ = std::move(token);
  } else {
    Process(std::move(token));
  }
}

void OutputAssembler::Close(FinishReason reason, int32_t matched_token) {
  if (ended()) return;
  const bool matched = reason == FinishReason::kEos || reason == FinishReason::kStopToken;
  if (candidate_.has_value() && (!matched || plan_.include_stop)) {
    Process(*std::exchange(candidate_, std::nullopt));
  }
  if (!ended() && decoder_.has_value()) AppendText(decoder_->Flush(), Searching());
  if (ended()) return;
  OutputEnd end;
  end.reason = reason;
  end.matched_token = matched ? matched_token : -1;
  End(std::move(end));
}

bool OutputAssembler::NextEvent(v1::GenerateTokens& event) {
  // Without tokens and text an event may be empty, if the changes of regions are held back.
  while (IsEventDue()) {
    event.set_position(static_cast<uint64_t>(event_position_));
    TakeItems(EventTokens(), &event);
    if (!plan_.token_infos && !plan_.text && event.regions().empty()) continue;
    event_position_ = next_position_;
    return true;
  }
  return false;
}

bool OutputAssembler::IsEventDue() const {
  if (sendable_ == 0) return false;
  const int64_t sendable = static_cast<int64_t>(sendable_);
  if (!ended() && (plan_.final_only || sendable < plan_.min_chunk_tokens)) return false;
  const bool wants_text = plan_.text || regions_.has_value();
  return plan_.token_infos || (wants_text && items_[sendable_ - 1].text_end > text_begin_);
}

void OutputAssembler::EndRegions(v1::GenerateFinished& finished) {
  if (!regions_.has_value()) return;
  // Text without a token belongs to a resumed output, whose reader has it.
  regions_->Append(text_, nullptr);
  regions_->End(*finished.mutable_regions());
}

void OutputAssembler::Process(SampledToken token) {
  ++processed_tokens_;
  const int32_t id = token.id;
  items_.push_back({std::move(token), DecodedEnd()});
  if (decoder_.has_value()) AppendText(decoder_->Append(id), Searching());
  if (!ended()) Settle(items_.back());
  // The reader of a replayed token has it, and the text up to its end.
  if (processed_tokens_ > replayed_tokens_ || items_.empty()) return;
  TakeItems(1, nullptr);
  event_position_ = next_position_;
}

void OutputAssembler::AppendText(const std::string& text, bool search) {
  if (search && !filter_begin_.has_value()) filter_begin_ = DecodedEnd();
  text_ += text;
  if (!search) return;
  const std::optional<StopStringFilter::Match> match = filter_.Append(text);
  if (!match.has_value()) return;
  OutputEnd end;
  end.reason = FinishReason::kStopToken;
  end.stop_string = filter_.stop_string(match->index);
  const int64_t begin = *filter_begin_ + match->begin;
  const int64_t behind = *filter_begin_ + match->end;
  EndAt(plan_.include_stop ? behind : begin,
        plan_.include_stop || plan_.stop_string_tokens ? behind : begin, std::move(end));
}

void OutputAssembler::Settle(Item& item) {
  item.text_end = CertainEnd();
  const bool whole = !decoder_.has_value() || !decoder_->holds();
  // A token without text is part of the output only if no stop string follows at once.
  const bool kept = plan_.stop_strings.empty() || item.text_end > item.text_begin;
  item.settled = whole && kept && item.text_end == DecodedEnd();
  if (item.settled) sendable_ = items_.size();
}

void OutputAssembler::EndAt(int64_t text_end, int64_t tokens_end, OutputEnd end) {
  text_.resize(static_cast<size_t>(text_end - text_begin_));
  while (!items_.empty() && items_.back().text_begin >= tokens_end) {
    items_.pop_back();
    ++dropped_tokens_;
  }
  End(std::move(end));
}

void OutputAssembler::End(OutputEnd end) {
  end_ = std::move(end);
  sendable_ = items_.size();
  // Text is sent only with a token. If none is left, the reader has the last token and with it all
  // of the text: the token was sent as the last one, or with its text settled.
  if (!items_.empty()) items_.back().text_end = DecodedEnd();
}

// Returns the end of the text that no later token can take back.
int64_t OutputAssembler::CertainEnd() const {
  if (!filter_begin_.has_value()) return DecodedEnd();
  return *filter_begin_ + filter_.releasable();
}

// Returns how many times an event contains its text: as text, in deltas, and as arguments, which
// JSON may lengthen.
int64_t OutputAssembler::TextFactor() const {
  return (plan_.text ? 1 : 0) + (regions_.has_value() ? 3 : 0);
}

// Returns the number of sendable tokens that fill an event, up to a settled one if there is one.
size_t OutputAssembler::EventTokens() const {
  int64_t bytes = 0;
  int64_t text_end = text_begin_;
  size_t settled = 0;
  for (size_t i = 0; i < sendable_; ++i) {
    if (bytes >= kMaxChunkBytes) return settled > 0 ? settled : i;
    const Item& item = items_[i];
    if (plan_.token_infos) {
      bytes += TokenInfoBytes(item.token.id, item.token.top.size(), tokenizer_);
    }
    bytes += TextFactor() * (item.text_end - text_end);
    text_end = item.text_end;
    if (item.settled) settled = i + 1;
  }
  return sendable_;
}

// Moves the first `count` items, at least one, with the text up to the end of the last of them,
// into `event` unless it is null.
void OutputAssembler::TakeItems(size_t count, v1::GenerateTokens* event) {
  std::string text = text_.substr(0, static_cast<size_t>(items_[count - 1].text_end - text_begin_));
  for (size_t i = 0; i < count; ++i) {
    if (regions_.has_value()) regions_->AddToken(items_.front().text_begin);
    if (event != nullptr && plan_.token_infos) {
      FillTokenInfo(items_.front().token, tokenizer_, *event->add_tokens());
    }
    items_.pop_front();
  }
  next_position_ += static_cast<int64_t>(count);
  text_.erase(0, text.size());
  text_begin_ += static_cast<int64_t>(text.size());
  sendable_ -= std::min(sendable_, count);
  if (regions_.has_value()) {
    regions_->Append(text, event != nullptr ? event->mutable_regions() : nullptr);
  }
  if (event != nullptr && plan_.text) event->set_text(std::move(text));
}

}  // namespace tlm
