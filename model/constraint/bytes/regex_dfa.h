// The automaton of an expression. States are created when they are first reached.
#ifndef TLM_MODEL_CONSTRAINT_BYTES_REGEX_DFA_H_
#define TLM_MODEL_CONSTRAINT_BYTES_REGEX_DFA_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "model/constraint/bytes/regex_set.h"

namespace tlm {

// Each state is a derivative of the expression. Not thread-safe.
class RegexDfa {
 public:
  using State = int32_t;
  // No string leads from here to an accepting state.
  static constexpr State kDead = -1;

  // `regexes` must outlive the automaton. Once it would have more than `max_states`, full() is true
  // and further states are kDead.
  RegexDfa(RegexSet& regexes, ByteRegex start, size_t max_states);

  // kDead if the expression holds no string.
  State start() const { return start_; }
  // The state of any expression of `regexes`: one automaton may serve several expressions.
  State StateOf(ByteRegex regex);
  // The state after `byte`. `state` must not be kDead.
  State Next(State state, uint8_t byte) {
    const int32_t known = states_[static_cast<size_t>(state)].next[byte];
    return known == kUnknown ? Fill(state, byte) : known;
  }
  bool Accepts(State state) const {
    return state != kDead && regexes_.HasEmpty(states_[static_cast<size_t>(state)].regex);
  }

  // Whether it accepts, and nothing may follow.
  bool IsEnd(State state) const {
    return state != kDead && states_[static_cast<size_t>(state)].regex == RegexSet::kEmpty;
  }

  // The bytes that do not lead to kDead.
  ByteSet NextBytes(State state) {
    ByteSet bytes;
    for (int byte = 0; byte < 256; ++byte) {
      if (Next(state, static_cast<uint8_t>(byte)) != kDead) bytes.Add(static_cast<uint8_t>(byte));
    }
    return bytes;
  }

  size_t size() const { return states_.size(); }
  // Approximate memory, without the memory of `regexes`.
  size_t bytes() const {
    return states_.capacity() * sizeof(StateRow) +
           kBytesPerHashEntry * (by_regex_.size() + live_.size());
  }
  bool full() const { return full_ || regexes_.full(); }

 private:
  static constexpr int32_t kUnknown = -2;
  struct StateRow {
    ByteRegex regex;
    std::array<int32_t, 256> next;  // state by byte, or kUnknown
  };

  State Fill(State state, uint8_t byte);
  // Whether the expression holds any string. Searches the derivatives and caches the result.
  bool IsLive(ByteRegex regex);

  RegexSet& regexes_;
  const size_t max_states_;
  bool full_ = false;
  std::vector<StateRow> states_;
  std::unordered_map<ByteRegex, State> by_regex_;
  std::unordered_map<ByteRegex, bool> live_;
  State start_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_BYTES_REGEX_DFA_H_
