#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/tokenizer/unicode.h"
#include "model/tokenizer/utf8.h"

namespace tlm {
namespace {

uint64_t EdgeKey(uint32_t node, uint8_t byte) { return static_cast<uint64_t>(node) << 8 | byte; }

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin);
  const std::string_view after = text.substr(end);
  return (!before.empty() && IsWordCharacter(LastCharacter(before).code_point)) ||
         (!after.empty() && IsWordCharacter(FirstCharacter(after).code_point));
}

// Where the white space that ends at `position` begins, looking back no further than `limit`.
size_t WhiteSpaceBegin(std::string_view text, size_t position, size_t limit) {
  while (position > limit) {
    const Utf8Character last = LastCharacter(text.substr(0, position));
    if (!IsWhiteSpace(last.code_point)) break;
    position -= last.length;
  }
  return position;
}

size_t WhiteSpaceEnd(std::string_view text, size_t position) {
  while (position < text.size()) {
    const Utf8Character first = FirstCharacter(text.substr(position));
    if (!IsWhiteSpace(first.code_point)) break;
    position += first.length;
  }
  return position;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens,
                                     const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)), token_at_{kNoToken} {
  TLM_CHECK(contents.size() == tokens_.size());
  for (size_t i = 0; i < contents.size(); ++i) Insert(contents[i], static_cast<int32_t>(i));
}

void AddedTokenMatcher::Insert(std::string_view content, int32_t token_index) {
  if (content.empty()) return;
  begins_token_[static_cast<uint8_t>(content[0])] = true;
  uint32_t node = kRoot;
  for (const char byte : content) {
    const auto [edge, added] = child_of_.try_emplace(EdgeKey(node, static_cast<uint8_t>(byte)),
                                                     static_cast<uint32_t>(token_at_.size()));
    if (added) token_at_.push_back(kNoToken);
    node = edge->second;
  }
  // Two contents may become one by normalisation; the larger id counts.
  int32_t& found = token_at_[node];
  if (found == kNoToken || tokens_[found].id < tokens_[token_index].id) found = token_index;
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::FindNext(std::string_view text,
                                                                    size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_token_[static_cast<uint8_t>(text[begin])]) continue;
    Match match{begin, begin, nullptr};
    uint32_t node = kRoot;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto edge = child_of_.find(EdgeKey(node, static_cast<uint8_t>(text[i])));
      if (edge == child_of_.end()) break;
      node = edge->second;
      if (token_at_[node] != kNoToken) match = {begin, i + 1, &tokens_[token_at_[node]]};
    }
    if (match.token != nullptr) return match;
  }
  return std::nullopt;
}

absl::Status AddedTokenMatcher::Split(std::string_view text, Sink sink) const {
  size_t done = 0;             // pieces before this byte went to the sink
  size_t white_space_end = 0;  // of the last run that a token took along
  size_t from = 0;
  while (const std::optional<Match> match = FindNext(text, from)) {
    from = match->end;
    const AddedToken& token = *match->token;
    if (token.single_word && TouchesWord(text, match->begin, match->end)) continue;
    size_t begin = match->begin;
    size_t end = match->end;
    if (token.lstrip) begin = std::max(WhiteSpaceBegin(text, begin, done), done);
    if (token.rstrip) {
      // Tokens of white space may follow each other in one run: it is walked once.
      if (end > white_space_end) white_space_end = WhiteSpaceEnd(text, end);
      end = white_space_end;
    }
    // A token may also lie in white space that the one before it took along; it counts all the
    // same.
    if (done < begin) {
      TLM_RETURN_IF_ERROR(sink({std::nullopt, text.substr(done, begin - done)}));
    }
    if (begin < end) TLM_RETURN_IF_ERROR(sink({token.id, {}}));
    done = end;
  }
  if (done == text.size()) return absl::OkStatus();
  return sink({std::nullopt, text.substr(done)});
}

}  // namespace tlm
