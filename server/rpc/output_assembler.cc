#include "server/rpc/output_assembler.h"

#include <algorithm>
#include <utility>

#include "server/rpc/request_limits.h"
#include "server/rpc/token_info.h"

namespace tlm {
namespace {

std::vector<int32_t> EndingIds(const StopCriteria& stop) {
  std::vector<int32_t> ids = stop.eos_token_ids;
  ids.insert(ids.end(), stop.stop_token_ids.begin(), stop.stop_token_ids.end());
  std::sort(ids.begin(), ids.end());
  return ids;
}

// The largest length <= `limit` that splits no character of `text`.
size_t CharacterBoundary(const std::string& text, size_t limit) {
  if (limit >= text.size()) return text.size();
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return limit;
}

}  // namespace

OutputAssembler::OutputAssembler(const OutputPlan& plan, const GenerateWork& work,
                                 const Tokenizer* tokenizer, int64_t prompt_tokens)
    : plan_(plan),
      ending_ids_(EndingIds(work.stop)),
      tokenizer_(tokenizer),
      filter_(plan.stop_strings),
      next_position_(prompt_tokens) {
  if (plan_.text || !plan_.stop_strings.empty()) {
    decoder_.emplace(tokenizer_, /*skip_special_tokens=*/true, plan_.text_position);
  }
}

void OutputAssembler::Append(SampledToken token) {
  if (ended()) return;
  if (candidate_.has_value()) Process(*std::exchange(candidate_, std::nullopt));
  if (ended()) return;
  if (CanEnd(token.id)) {
    ++completion_tokens_;
    candidate_ = std::move(token);
    return;
  }
  ++completion_tokens_;
  Process(std::move(token));
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
  end_ = std::move(end);
}

bool OutputAssembler::NextEvent(v1::GenerateTokens& event) {
  const int64_t sendable = SendableTokens();
  if (!ended() && (plan_.final_only || sendable < plan_.min_chunk_tokens)) return false;
  const int64_t text_end = plan_.text ? SendableTextEnd() : text_begin_;
  if (!plan_.token_infos && text_end == text_begin_) return false;
  if (sendable == 0 && text_end == text_begin_) return false;

  event.set_position(static_cast<uint64_t>(next_position_));
  int64_t bytes = 0;
  int64_t taken = 0;
  while (taken < sendable && bytes < kMaxChunkBytes) {
    if (plan_.token_infos) {
      const SampledToken& token = items_.front().token;
      bytes += TokenInfoBytes(token.id, token.top.size(), tokenizer_);
      FillTokenInfo(token, tokenizer_, *event.add_tokens());
    }
    items_.pop_front();
    ++taken;
  }
  next_position_ += taken;
  // Text goes with the last of the tokens it came from.
  if (taken == sendable) TakeText(text_end, event.mutable_text());
  return true;
}

bool OutputAssembler::CanEnd(int32_t id) const {
  return std::binary_search(ending_ids_.begin(), ending_ids_.end(), id);
}

void OutputAssembler::Process(SampledToken token) {
  ++processed_tokens_;
  const int64_t begin = text_begin_ + static_cast<int64_t>(text_.size());
  const int32_t id = token.id;
  items_.push_back({std::move(token), begin});
  if (!decoder_.has_value()) return;
  AppendText(decoder_->Append(id), Searching());
}

void OutputAssembler::AppendText(const std::string& text, bool search) {
  if (search && !filter_begin_.has_value()) {
    filter_begin_ = text_begin_ + static_cast<int64_t>(text_.size());
  }
  text_ += text;
  if (!search) return;
  const std::optional<StopStringFilter::Match> match = filter_.Append(text);
  if (!match.has_value()) return;
  OutputEnd end;
  end.reason = FinishReason::kStopToken;
  end.stop_string = filter_.stop_string(match->index);
  EndAt(*filter_begin_ + (plan_.include_stop ? match->end : match->begin), std::move(end));
}

void OutputAssembler::EndAt(int64_t text_end, OutputEnd end) {
  text_.resize(static_cast<size_t>(text_end - text_begin_));
  while (!items_.empty() && items_.back().text_begin >= text_end) items_.pop_back();
  end_ = std::move(end);
}

int64_t OutputAssembler::SendableTokens() const {
  if (ended() || plan_.stop_strings.empty()) return static_cast<int64_t>(items_.size());
  // Later ones would not be part of the output if the text held back became a stop string.
  const int64_t end = SendableTextEnd();
  const auto first_held = std::find_if(items_.begin(), items_.end(),
                                       [end](const Item& item) { return item.text_begin >= end; });
  return first_held - items_.begin();
}

int64_t OutputAssembler::SendableTextEnd() const {
  const int64_t decoded = text_begin_ + static_cast<int64_t>(text_.size());
  if (ended() || !filter_begin_.has_value()) return decoded;
  return *filter_begin_ + filter_.releasable();
}

void OutputAssembler::TakeText(int64_t end, std::string* text) {
  const size_t available = static_cast<size_t>(end - text_begin_);
  const size_t bytes =
      CharacterBoundary(text_, std::min<size_t>(available, static_cast<size_t>(kMaxChunkBytes)));
  text->assign(text_, 0, bytes);
  text_.erase(0, bytes);
  text_begin_ += static_cast<int64_t>(bytes);
}

}  // namespace tlm
