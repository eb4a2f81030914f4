#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/text/unicode.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  const std::string_view before = text.substr(0, begin);
  const std::string_view after = text.substr(end);
  return (!before.empty() && IsWordCharacter(LastCharacter(before).code_point)) ||
         (!after.empty() && IsWordCharacter(FirstCharacter(after).code_point));
}

// Returns the beginning of the white space that ends at `position`, looking back no further than
// `limit`.
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
    : tokens_(std::move(tokens)) {
  TLM_CHECK(contents.size() == tokens_.size());
  for (size_t i = 0; i < contents.size(); ++i) {
    if (contents[i].empty()) continue;
    // Two contents may become equal by normalisation; the larger id counts.
    int32_t& index = index_of_[contents[i]];
    if (index == ByteTrie::kNone || tokens_[index].id < tokens_[i].id) {
      index = static_cast<int32_t>(i);
    }
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::FindNext(std::string_view text,
                                                                    size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!index_of_.Begins(text[begin])) continue;
    Match match{begin, begin, nullptr};
    index_of_.FindPrefixes(text.substr(begin), [&](size_t length, int32_t index) {
      match = {begin, begin + length, &tokens_[index]};
    });
    if (match.token != nullptr) return match;
  }
  return std::nullopt;
}

absl::Status AddedTokenMatcher::Split(std::string_view text, Sink sink, bool with_special) const {
  size_t done = 0;             // pieces before this byte went to the sink
  size_t white_space_end = 0;  // end of the last run that a token included
  size_t from = 0;
  while (const std::optional<Match> match = FindNext(text, from)) {
    from = match->end;
    const AddedToken& token = *match->token;
    if (token.special && !with_special) continue;
    if (token.single_word && TouchesWord(text, match->begin, match->end)) continue;
    size_t begin = match->begin;
    size_t end = match->end;
    if (token.lstrip) begin = std::max(WhiteSpaceBegin(text, begin, done), done);
    if (token.rstrip) {
      // Tokens of white space may follow each other in one run: it is scanned once.
      if (end > white_space_end) white_space_end = WhiteSpaceEnd(text, end);
      end = white_space_end;
    }
    // A token may also be inside white space that the token before it included; it still counts.
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
