// The automaton of free text up to the trigger or lead that ends it.
#ifndef TLM_MODEL_CONSTRAINT_FREE_TEXT_H_
#define TLM_MODEL_CONSTRAINT_FREE_TEXT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/constraint/bytes/regex_set.h"

namespace tlm {

// The automaton of a node's free text, up to and including the first marker in it. It accepts after
// a complete marker. If the output may end, it also accepts after the byte kEnd, which no text has;
// so a state is dead only if neither a marker nor the end can follow. If several markers end at one
// byte, the longest counts. Immutable.
class FreeText final : public RegexSet::Automaton {
 public:
  // Stands for the end of the output. No UTF-8 text has this byte.
  static constexpr char kEnd = '\xFE';

  // A trigger or a lead.
  struct Marker {
    std::string text;
    bool only_first = false;     // matches only at the start of the text
    std::vector<int32_t> edges;  // edges that follow; if empty, the text may not contain the marker
  };

  // The text may not contain the plain spelling of a marker with special tokens, unless that
  // spelling is itself a marker.
  FreeText(std::vector<Marker> markers, bool may_end);

  int32_t start() const { return start_; }
  int32_t Next(int32_t state, uint8_t byte) const override;
  bool Accepts(int32_t state) const override {
    return state == kEnded || MarkerAt(state) != nullptr;
  }
  // The marker that is complete in `state`; null if there is none.
  const Marker* MarkerAt(int32_t state) const {
    const int32_t marker = markers_at_[NodeOf(state)];
    return marker < 0 ? nullptr : &markers_[static_cast<size_t>(marker)];
  }
  // True between characters, unless the text is within a marker that has special tokens.
  bool MayEnd(int32_t state) const {
    return state % kUtf8States == 0 && marks_[NodeOf(state)] == 0;
  }
  size_t bytes() const;

 private:
  static constexpr int32_t kUtf8States = 8;
  static constexpr int32_t kEnded = 1 << 30;

  static size_t NodeOf(int32_t state) { return static_cast<size_t>(state / kUtf8States); }
  // Indices in next_.
  size_t RowOf(int32_t node) const { return static_cast<size_t>(node) * column_count_; }
  size_t IndexOf(int32_t node, uint8_t byte) const { return RowOf(node) + columns_[byte]; }
  void ForbidPlainSpellings();
  // Builds the tree of markers; returns the children of each node by byte.
  std::vector<std::map<uint8_t, int32_t>> AddMarkers();
  void FillRows(const std::vector<std::map<uint8_t, int32_t>>& below);

  std::vector<Marker> markers_;
  const bool may_end_;
  int32_t start_ = 0;
  // An Aho-Corasick automaton. A node is a prefix of markers; node 0 is the empty prefix. The node
  // of a text is its longest suffix that is such a prefix. Bytes that occur in no marker share
  // column 0.
  std::array<uint8_t, 256> columns_{};
  size_t column_count_ = 1;
  std::vector<uint16_t> next_;       // next node by node and column
  std::vector<int32_t> markers_at_;  // by node: index in markers_, or -1
  std::vector<uint16_t> marks_;      // by node: special tokens in its prefix
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_FREE_TEXT_H_
