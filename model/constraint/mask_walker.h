// Which tokens may follow: the vocabulary walked along a language.
#ifndef TLM_MODEL_CONSTRAINT_MASK_WALKER_H_
#define TLM_MODEL_CONSTRAINT_MASK_WALKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/constraint/byte_set.h"
#include "model/constraint/recognizer.h"
#include "model/constraint/regex_dfa.h"
#include "model/constraint/token_trie.h"

namespace tlm {

// Remembers what it found within automata (Recognizer::Part). Not thread-safe.
class MaskWalker {
 public:
  // `tokens` and `recognizer` outlive this. A walk ends once states take more than
  // `max_state_bytes`; what is remembered takes about `max_bytes` at most.
  MaskWalker(const TokenTrie& tokens, Recognizer& recognizer, size_t max_state_bytes,
             size_t max_bytes);

  // Sets the bits of the tokens all of whose bytes keep `state` alive; it is not kDead. False when
  // a limit was met: then some may lack.
  bool Mark(Recognizer::State state, std::span<uint64_t> words);
  // Whether states are wrong or take too much.
  bool Exhausted() const { return recognizer_.full() || recognizer_.bytes() > max_state_bytes_; }

  size_t bytes() const;

 private:
  // Of a state of an automaton.
  struct PartMask {
    std::vector<uint64_t> words;  // the tokens that stay within the part
    std::vector<uint32_t> ends;   // the nodes that end it, in their order
  };
  // How long texts of an alphabet may be from a state of an automaton on, in characters.
  struct Reach {
    size_t all = 0;   // up to here all of them are alive and within the part
    size_t none = 0;  // from here on none of them is
  };
  static constexpr size_t kNoLimit = SIZE_MAX;

  const PartMask& PartMaskOf(const Recognizer::Part& part);
  void MarkPart(const Recognizer::Part& part, PartMask& mask);
  Reach ReachOf(const Recognizer::Part& part, size_t alphabet);
  void WalkPart(const Recognizer::Part& part, size_t alphabet, PartMask& mask);
  bool MarkLong(const Recognizer::Part& part, const TokenTrie::Part& tokens, PartMask& mask);
  void MarkRoots(Recognizer::State state, std::span<uint64_t> words);
  void MarkEnds(Recognizer::State state, std::span<const uint32_t> ends, std::span<uint64_t> words);
  void MarkBelow(uint32_t node, std::span<uint64_t> words);
  void MarkNode(uint32_t node, std::span<uint64_t> words) const;
  bool Step();

  const TokenTrie& tokens_;
  Recognizer& recognizer_;
  const size_t max_state_bytes_;
  const size_t max_parts_;
  std::map<std::pair<RegexDfa*, RegexDfa::State>, PartMask> parts_;
  size_t end_bytes_ = 0;  // of parts_
  // By depth.
  std::vector<int32_t> states_;
  std::vector<ByteSet> next_bytes_;
  int steps_ = 0;
  bool exhausted_ = false;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_MASK_WALKER_H_
