// Computes masks: walks the trie of the vocabulary from a state of a recognizer.
#ifndef TLM_MODEL_CONSTRAINT_MASK_MASK_WALKER_H_
#define TLM_MODEL_CONSTRAINT_MASK_MASK_WALKER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "model/constraint/bytes/recognizer.h"
#include "model/constraint/bytes/regex_dfa.h"
#include "model/constraint/mask/token_trie.h"

namespace tlm {

// Computes the mask of a state. It caches the masks of parts (Recognizer::Part) by the state of the
// part's automaton. Not thread-safe.
class MaskWalker {
 public:
  // `tokens` and `recognizer` must outlive the walker. A walk stops once the recognizer takes more
  // than `max_state_bytes`. The cache takes at most about `max_bytes`.
  MaskWalker(const TokenTrie& tokens, Recognizer& recognizer, size_t max_state_bytes,
             size_t max_bytes);

  // Sets the bits of the tokens whose bytes lead from `state` to a live state; `state` must not be
  // kDead. Returns false if a limit was met: then bits may be missing.
  bool Mark(Recognizer::State state, std::span<uint64_t> words);
  // Whether the recognizer met a limit, so that its states are wrong, or takes too much memory.
  bool Exhausted() const { return recognizer_.full() || recognizer_.bytes() > max_state_bytes_; }

  size_t bytes() const;

 private:
  // The nodes of the trie whose last byte ends the part, if the automaton is in state `inside`
  // before that byte.
  struct Ends {
    RegexDfa::State inside;
    std::vector<uint32_t> nodes;  // ascending
    // If the last byte of every node is a quote: the tails of the tokens at and below the nodes.
    std::vector<TokenTrie::Tail> tails;
    std::vector<uint32_t> tails_begin;  // first index in `tails` by node, then tails.size()
  };
  // The mask of a part in one state of its automaton.
  struct PartMask {
    std::vector<uint64_t> words;  // the tokens that stay within the part
    std::vector<Ends> ends;       // the tokens that leave it
  };
  // How texts of an alphabet continue from a state of an automaton, by their length in characters.
  struct Reach {
    size_t all_live_to = 0;     // up to this length all texts stay alive and within the part
    size_t none_live_from = 0;  // from this length on no text does
  };
  // Whether a tail may follow a state.
  enum TailVerdict : uint8_t { kRefused, kAllowed, kUnknown };
  static constexpr size_t kNoLimit = SIZE_MAX;

  const PartMask& PartMaskOf(const Recognizer::Part& part);
  void MarkPart(const Recognizer::Part& part, PartMask& mask);
  Reach ReachOf(const Recognizer::Part& part, size_t alphabet);
  void WalkPart(const Recognizer::Part& part, uint32_t begin, uint32_t end,
                std::span<uint64_t> words, std::vector<Ends>& ends);
  bool MarkLong(const Recognizer::Part& part, const TokenTrie::Part& tokens, PartMask& mask);
  void MarkRoots(Recognizer::State state, std::span<uint64_t> words);
  void MarkEnds(Recognizer::State state, const Recognizer::Part& part, const Ends& ends,
                std::span<uint64_t> words);
  void MarkAlike(Recognizer::State state, const Ends& ends, std::span<const uint32_t> alike,
                 uint32_t example, std::span<uint64_t> words);
  void MarkEnd(Recognizer::State state, uint32_t depth, uint32_t node, std::span<uint64_t> words);
  const std::vector<TailVerdict>& TailsOf(Recognizer::State state);
  void Recheck(Recognizer::State state, std::string_view end, std::span<uint64_t> words);
  bool Keeps(Recognizer::State state, std::string_view text);
  std::string_view PathOf(uint32_t node) const;
  void MarkBelow(uint32_t node, std::span<uint64_t> words);
  void MarkNode(uint32_t node, std::span<uint64_t> words) const;
  bool Step();

  const TokenTrie& tokens_;
  Recognizer& recognizer_;
  const size_t max_state_bytes_;
  const size_t max_parts_;
  std::map<std::pair<RegexDfa*, RegexDfa::State>, PartMask> parts_;
  size_t end_bytes_ = 0;  // memory of all Ends in parts_
  // States by depth in the trie, along the current path: of the recognizer, and of the automaton of
  // the current part.
  std::vector<Recognizer::State> states_;
  std::vector<RegexDfa::State> inside_;
  // The state that TailsOf was called with last, and its result.
  Recognizer::State tails_state_ = Recognizer::kDead;
  std::vector<TailVerdict> tails_;
  int steps_ = 0;
  bool exhausted_ = false;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_MASK_MASK_WALKER_H_
