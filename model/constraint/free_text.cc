#include "model/constraint/free_text.h"

#include <algorithm>

#include "model/base/errors.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/mask/token_trie.h"

namespace tlm {
namespace {

// Well-formed UTF-8 byte by byte: the next state by state and byte. State 0 is between characters.
using Utf8Rows = std::array<std::array<int32_t, 256>, 8>;

const Utf8Rows& Utf8() {
  static const Utf8Rows rows = [] {
    Utf8Rows made{};
    RegexSet regexes(1000);
    RegexDfa dfa(regexes, AnyTextRegex(regexes, TextForm::kUtf8), made.size());
    for (size_t state = 0; state < dfa.size(); ++state) {  // grows
      for (size_t byte = 0; byte < 256; ++byte) {
        made[state][byte] = dfa.Next(static_cast<int32_t>(state), static_cast<uint8_t>(byte));
      }
    }
    TLM_CHECK(dfa.start() == 0 && dfa.size() == made.size() && !dfa.full());
    return made;
  }();
  return rows;
}

}  // namespace

FreeText::FreeText(std::vector<Marker> markers, bool may_end)
    : markers_(std::move(markers)), may_end_(may_end) {
  ForbidPlainSpellings();
  FillRows(AddMarkers());
}

void FreeText::ForbidPlainSpellings() {
  const size_t given = markers_.size();
  for (size_t i = 0; i < given; ++i) {
    Marker plain = {.text = markers_[i].text, .only_first = markers_[i].only_first, .edges = {}};
    std::erase_if(plain.text, IsSpecialMark);
    const bool is_marker = std::ranges::any_of(markers_, [&](const Marker& marker) {
      return marker.text == plain.text && (plain.only_first || !marker.only_first);
    });
    if (!is_marker) markers_.push_back(std::move(plain));
  }
}

std::vector<std::map<uint8_t, int32_t>> FreeText::AddMarkers() {
  std::vector<std::map<uint8_t, int32_t>> below(1);
  markers_at_ = {-1};
  marks_ = {0};
  for (size_t i = 0; i < markers_.size(); ++i) {
    int32_t node = 0;
    // A marker that matches only at the start follows a byte that no text has.
    for (const char c : (markers_[i].only_first ? std::string(1, kEnd) : "") + markers_[i].text) {
      const auto byte = static_cast<uint8_t>(c);
      if (columns_[byte] == 0) columns_[byte] = static_cast<uint8_t>(column_count_++);
      const auto [next, is_new] =
          below[static_cast<size_t>(node)].emplace(byte, static_cast<int32_t>(below.size()));
      const uint16_t marks = marks_[static_cast<size_t>(node)];
      node = next->second;
      if (!is_new) continue;
      below.emplace_back();
      markers_at_.push_back(-1);
      marks_.push_back(static_cast<uint16_t>(marks + (IsSpecialMark(c) ? 1 : 0)));
    }
    int32_t& marker = markers_at_[static_cast<size_t>(node)];
    if (marker < 0) marker = static_cast<int32_t>(i);
  }
  if (const auto first = below[0].find(static_cast<uint8_t>(kEnd)); first != below[0].end()) {
    start_ = first->second * kUtf8States;
  }
  return below;
}

void FreeText::FillRows(const std::vector<std::map<uint8_t, int32_t>>& below) {
  next_.assign(below.size() * column_count_, 0);
  std::vector<int32_t> ends(below.size(), 0);  // the longest proper suffix that is a node
  std::vector<int32_t> order = {0};            // shorter prefixes first
  for (size_t i = 0; i < order.size(); ++i) {  // grows
    const int32_t node = order[i];
    const auto at = static_cast<size_t>(node);
    const int32_t end = ends[at];
    if (node != 0) {
      std::copy_n(next_.begin() + static_cast<ptrdiff_t>(RowOf(end)), column_count_,
                  next_.begin() + static_cast<ptrdiff_t>(RowOf(node)));
      const auto end_at = static_cast<size_t>(end);
      if (markers_at_[at] < 0 && marks_[at] == marks_[end_at]) {
        markers_at_[at] = markers_at_[end_at];
      }
    }
    for (const auto& [byte, next] : below[at]) {
      if (node != 0) ends[static_cast<size_t>(next)] = next_[IndexOf(end, byte)];
      next_[IndexOf(node, byte)] = static_cast<uint16_t>(next);
      order.push_back(next);
    }
  }
}

int32_t FreeText::Next(int32_t state, uint8_t byte) const {
  if (state == kEnded) return kDead;
  if (byte == static_cast<uint8_t>(kEnd)) return may_end_ && MayEnd(state) ? kEnded : kDead;
  const int32_t inside = state % kUtf8States;
  const bool is_mark = IsSpecialMark(static_cast<char>(byte));
  const int32_t then = is_mark ? inside : Utf8()[static_cast<size_t>(inside)][byte];
  if (then == kDead || (is_mark && inside != 0)) return kDead;
  const size_t from = NodeOf(state);
  const uint16_t to = next_[IndexOf(static_cast<int32_t>(from), byte)];
  // Special tokens occur in markers only.
  if (marks_[to] != marks_[from] + (is_mark ? 1 : 0)) return kDead;
  const int32_t next = to * kUtf8States + then;
  const Marker* const marker = MarkerAt(next);
  return marker != nullptr && marker->edges.empty() ? kDead : next;
}

size_t FreeText::bytes() const {
  size_t bytes = sizeof *this + next_.size() * sizeof next_[0] +
                 markers_at_.size() * (sizeof markers_at_[0] + sizeof marks_[0]);
  for (const Marker& marker : markers_) {
    bytes += sizeof marker + marker.text.size() + marker.edges.size() * sizeof(int32_t);
  }
  return bytes;
}

}  // namespace tlm
