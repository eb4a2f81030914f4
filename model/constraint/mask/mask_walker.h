// Which tokens may follow: the vocabulary walked along a language.
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
  // The nodes that end a part from one state of its automaton on.
  struct Ends {
    RegexDfa::State inside;
    std::vector<uint32_t> nodes;  // in their order
    // If all end it with a quote: the tokens at and below the nodes.
    std::vector<TokenTrie::Tail> tails;
    std::vector<uint32_t> tails_begin;  // of each node, and their end
  };
  // Of a state of an automaton.
  struct PartMask {
    std::vector<uint64_t> words;  // the tokens that stay within the part
    std::vector<Ends> ends;
  };
  // How long texts of an alphabet may be from a state of an automaton on, in characters.
  struct Reach {
    size_t all = 0;   // up to here all of them are alive and within the part
    size_t none = 0;  // from here on none of them is
  };
  // Of what follows an end.
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
  void MarkLike(Recognizer::State state, const Ends& ends, std::span<const uint32_t> like,
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
  size_t end_bytes_ = 0;  // of parts_
  // By depth: states, and what an automaton is in.
  std::vector<Recognizer::State> states_;
  std::vector<RegexDfa::State> inside_;
  // Behind the state that TailsOf was asked last.
  Recognizer::State tails_state_ = Recognizer::kDead;
  std::vector<TailVerdict> tails_;
  int steps_ = 0;
  bool exhausted_ = false;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_MASK_MASK_WALKER_H_
