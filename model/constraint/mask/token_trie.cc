#include "model/constraint/mask/token_trie.h"

#include <cstring>
#include <utility>

#include "model/text/utf8.h"
#include "model/tokenizer/token_decoder.h"

namespace tlm {
namespace {

using Alphabet = TokenTrie::Alphabet;

// The smallest alphabet that contains the byte; kText for a byte of a character of several bytes.
constexpr Alphabet AlphabetOf(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return TokenTrie::kLower;
  if (byte >= 'A' && byte <= 'Z') return TokenTrie::kLetters;
  if ((byte >= '0' && byte <= '9') || byte == '_') return TokenTrie::kWord;
  if (byte >= 0x80) return TokenTrie::kText;
  return byte >= 0x20 && byte < 0x7F && byte != '"' && byte != '\\' ? TokenTrie::kAscii
                                                                    : TokenTrie::kBytes;
}

Alphabet AlphabetOf(std::string_view text) {
  Alphabet alphabet = TokenTrie::kLower;
  for (const char byte : text)
    alphabet = std::max(alphabet, AlphabetOf(static_cast<uint8_t>(byte)));
  if (alphabet == TokenTrie::kText && !IsValidUtf8(text)) return TokenTrie::kBytes;
  return alphabet;
}

// The first 8 bytes as a number that compares as the texts do.
uint64_t SortKey(std::string_view text) {
  uint64_t key = 0;
  for (size_t i = 0; i < 8; ++i) key = key << 8 | (i < text.size() ? uint8_t(text[i]) : 0);
  return key;
}

size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto [end, unused] =
      std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin());
  return static_cast<size_t>(end - a.begin());
}

// The bytes that a token appends to an empty text. Empty also if the decoder could strip more once
// further tokens follow.
std::string BeginningText(const Tokenizer& tokenizer, int32_t id) {
  const TokenDecoder& decoder = tokenizer.decoder();
  std::string_view text =
      decoder.first_token_is_special() ? tokenizer.FirstTokenText(id) : tokenizer.TokenBytes(id);
  const std::string_view stripped = decoder.stripped();
  for (size_t i = 0; i < decoder.max_stripped() && !stripped.empty(); ++i) {
    if (text.size() < stripped.size() && stripped.substr(0, text.size()) == text) return {};
    if (text.substr(0, stripped.size()) != stripped) break;
    text.remove_prefix(stripped.size());
  }
  return std::string(text);
}

// The bytes that a token appends to a constrained text, either at its beginning or later. The
// mark's byte is in no well-formed text, so an ordinary token with that byte has no text.
std::string TextIn(const Tokenizer& tokenizer, int32_t id, bool begins) {
  if (tokenizer.IsSpecial(id)) return kSpecialTokenMark + tokenizer.IdToToken(id);
  const std::string_view bytes = tokenizer.TokenBytes(id);
  if (bytes.find(kSpecialTokenMark) != bytes.npos) return {};
  return begins ? BeginningText(tokenizer, id) : std::string(bytes);
}

}  // namespace

std::shared_ptr<const TokenTrie> TokenTrie::Build(const Tokenizer& tokenizer,
                                                  std::span<const int32_t> end_tokens) {
  const auto build = [&](bool begins) {
    const auto text_of = [&](int32_t id) {
      const bool ends = std::find(end_tokens.begin(), end_tokens.end(), id) != end_tokens.end();
      return ends ? std::string() : TextIn(tokenizer, id, begins);
    };
    std::shared_ptr<TokenTrie> trie(
        new TokenTrie(&tokenizer, static_cast<size_t>(tokenizer.vocab_size()), text_of));
    trie->end_tokens_.assign(end_tokens.begin(), end_tokens.end());
    return trie;
  };
  std::shared_ptr<TokenTrie> trie = build(false);
  const TokenDecoder& decoder = tokenizer.decoder();
  if (decoder.first_token_is_special() || decoder.max_stripped() > 0)
    trie->beginning_ = build(true);
  return trie;
}

std::shared_ptr<const TokenTrie> TokenTrie::Build(std::span<const std::string> texts,
                                                  std::span<const int32_t> end_tokens) {
  const auto text_of = [&](int32_t id) { return texts[static_cast<size_t>(id)]; };
  std::shared_ptr<TokenTrie> trie(new TokenTrie(nullptr, texts.size(), text_of));
  trie->end_tokens_.assign(end_tokens.begin(), end_tokens.end());
  return trie;
}

TokenTrie::TokenTrie(const Tokenizer* tokenizer, size_t tokens,
                     absl::FunctionRef<std::string(int32_t)> text_of)
    : tokenizer_(tokenizer), is_own_(tokens) {
  size_t bytes = 0;
  for (size_t i = 0; i < tokens; ++i) {
    const auto id = static_cast<int32_t>(i);
    std::string text = text_of(id);
    if (text.size() > kMaxTextBytes) text.clear();
    bytes += text.size();
    is_own_[i] = tokenizer == nullptr || text != tokenizer->TokenBytes(id);
    if (is_own_[i] && !text.empty()) own_texts_.emplace(id, std::move(text));
  }
  nodes_.reserve(bytes + 1);  // avoids copies; untouched pages take no memory
  BuildParts();
}

void TokenTrie::BuildParts() {
  const auto tokens = static_cast<size_t>(vocab_size());
  std::vector<uint8_t> alphabets(tokens);
  std::vector<uint16_t> lengths(tokens);
  std::array<std::vector<int32_t>, kAlphabets> members;
  for (size_t i = 0; i < tokens; ++i) {
    const auto id = static_cast<int32_t>(i);
    const std::string_view text = Text(id);
    if (text.empty()) continue;
    const Alphabet alphabet = AlphabetOf(text);
    const size_t length = alphabet == kText ? CountCodePoints(text) : text.size();
    alphabets[i] = static_cast<uint8_t>(alphabet);
    lengths[i] = static_cast<uint16_t>(length);
    members[alphabet].push_back(id);
    Part& part = parts_[alphabet];
    part.longest = std::max(part.longest, length);
    if (length > kMaxLength) part.long_tokens.push_back(id);
  }
  for (size_t i = 0; i < kAlphabets; ++i) {
    BuildPart(static_cast<Alphabet>(i), std::move(members[i]));
  }
  nodes_.push_back({0, static_cast<uint32_t>(order_.size()), 0, 0});
  BuildBitmaps(alphabets, lengths);
  BuildTails();
}

void TokenTrie::BuildPart(Alphabet alphabet, std::vector<int32_t> tokens) {
  std::vector<std::pair<uint64_t, int32_t>> sorted;
  sorted.reserve(tokens.size());
  for (const int32_t id : tokens) sorted.emplace_back(SortKey(Text(id)), id);
  std::sort(sorted.begin(), sorted.end(), [this](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const int order = Text(a.second).compare(Text(b.second));
    return order != 0 ? order < 0 : a.second < b.second;
  });
  Part& part = parts_[alphabet];
  part.begin = static_cast<uint32_t>(nodes_.size());
  part.child.fill(kNoNode);
  std::vector<uint32_t> path;  // nodes from the root to the last one
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  std::string_view previous;
  for (const auto& [key, id] : sorted) {
    const std::string_view text = Text(id);
    close_to(CommonPrefix(previous, text));
    while (path.size() < text.size()) {
      const auto byte = static_cast<uint8_t>(text[path.size()]);
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(order_.size()), static_cast<uint16_t>(path.size()), byte});
    }
    part.first.Add(static_cast<uint8_t>(text[0]));
    part.child[static_cast<uint8_t>(text[0])] = path[0];
    order_.push_back(id);
    previous = text;
  }
  close_to(0);
  part.end = static_cast<uint32_t>(nodes_.size());
}

void TokenTrie::BuildTails() {
  const uint32_t first = nodes_[parts_[kBytes].begin].tokens;
  std::vector<std::pair<std::string_view, uint32_t>> sorted;  // tail, index in tail_numbers_
  for (size_t i = first; i < order_.size(); ++i) {
    tails_begin_.push_back(static_cast<uint32_t>(tail_numbers_.size()));
    const std::string_view text = Text(order_[i]);
    for (size_t quote = text.find('"'); quote != text.npos; quote = text.find('"', quote + 1)) {
      sorted.emplace_back(text.substr(quote + 1), static_cast<uint32_t>(tail_numbers_.size()));
      tail_numbers_.push_back(0);
    }
  }
  std::sort(sorted.begin(), sorted.end());
  tails_.push_back({0, 0, 0, 0});
  std::vector<uint32_t> path = {0};
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      tails_[path.back()].end = static_cast<uint32_t>(tails_.size());
    }
  };
  std::string_view previous;
  for (const auto& [tail, place] : sorted) {
    close_to(CommonPrefix(previous, tail));
    while (path.size() <= tail.size()) {
      const auto depth = static_cast<uint16_t>(path.size());
      path.push_back(static_cast<uint32_t>(tails_.size()));
      tails_.push_back({0, 0, depth, static_cast<uint8_t>(tail[depth - 1u])});
    }
    tail_numbers_[place] = path.back();
    previous = tail;
  }
  close_to(0);
  tails_[0].end = static_cast<uint32_t>(tails_.size());
}

void TokenTrie::AppendTails(uint32_t node, std::vector<Tail>& to) const {
  const uint32_t begin = nodes_[node].tokens, end = nodes_[nodes_[node].end].tokens;
  if (begin == end) return;
  const std::string_view path = Text(order_[begin]).substr(0, nodes_[node].depth);
  const auto quote = static_cast<size_t>(std::count(path.begin(), path.end(), '"') - 1);
  const uint32_t first = nodes_[parts_[kBytes].begin].tokens;
  for (uint32_t i = begin; i < end; ++i) {
    to.push_back({order_[i], tail_numbers_[tails_begin_[i - first] + quote]});
  }
}

void TokenTrie::BuildBitmaps(std::span<const uint8_t> alphabets,
                             std::span<const uint16_t> lengths) {
  constexpr size_t kRows = kMaxLength + 1;
  up_to_.resize(size_t{kBytes} * kRows * words());
  const auto row = [&](size_t alphabet, size_t length) {
    return up_to_.data() + (alphabet * kRows + length) * words();
  };
  for (size_t id = 0; id < lengths.size(); ++id) {
    if (lengths[id] == 0 || alphabets[id] == kBytes) continue;
    const size_t length = std::min<size_t>(lengths[id], kRows) - 1;
    SetTokenBit(static_cast<int32_t>(id), {row(alphabets[id], length), words()});
  }
  const auto add = [&](const uint64_t* from, uint64_t* to) {
    for (size_t i = 0; i < words(); ++i) to[i] |= from[i];
  };
  for (size_t alphabet = 0; alphabet < kBytes; ++alphabet) {
    for (size_t length = 1; length < kRows; ++length) {
      add(row(alphabet, length - 1), row(alphabet, length));
    }
  }
  for (size_t alphabet = 1; alphabet < kBytes; ++alphabet) {
    for (size_t length = 0; length < kRows; ++length) {
      add(row(alphabet - 1, length), row(alphabet, length));
    }
  }
}

std::vector<int32_t> TokenTrie::Encode(std::string_view text) const {
  if (tokenizer_ == nullptr || text.empty() || !IsValidUtf8(text)) return {};
  // The tokenizer may put a space before a text. So try the text, then the text without its first
  // byte (which may be that space), then the text after a newline.
  std::string after_line("\n");
  after_line += text;
  for (const std::string_view written : {text, text.substr(1), std::string_view(after_line)}) {
    const auto ids =
        tokenizer_->Encode(written, {.add_special_tokens = false, .parse_special = false});
    if (!ids.ok()) continue;
    std::string joined;
    for (const int32_t id : *ids) joined += Text(id);
    if (joined.size() < text.size()) continue;
    const size_t before = joined.size() - text.size();
    if (std::string_view(joined).substr(before) != text) continue;
    size_t skipped = 0, first = 0;
    while (skipped < before) skipped += Text((*ids)[first++]).size();
    if (skipped == before) return {ids->begin() + static_cast<ptrdiff_t>(first), ids->end()};
  }
  return {};
}

size_t TokenTrie::bytes() const {
  size_t own = 0;
  for (const auto& [id, text] : own_texts_) own += text.size() + sizeof(id) + sizeof text;
  return own + is_own_.size() / 8 + nodes_.size() * sizeof(Node) +
         (order_.size() + tail_numbers_.size() + tails_begin_.size()) * sizeof(uint32_t) +
         tails_.size() * sizeof(Node) + up_to_.size() * sizeof(uint64_t) + sizeof *this +
         (beginning_ != nullptr ? beginning_->bytes() : 0);
}

}  // namespace tlm
