// Finds stop strings in text that arrives in pieces, and computes how much of it may be sent.
#ifndef TLM_SERVER_RPC_OUTPUT_STOP_STRING_FILTER_H_
#define TLM_SERVER_RPC_OUTPUT_STOP_STRING_FILTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {

// Matches byte by byte (Knuth, Morris and Pratt 1977): the result does not depend on the pieces,
// and the cost is bytes times stop strings. Thread-compatible.
class StopStringFilter {
 public:
  // Offsets count the bytes of all text appended so far.
  struct Match {
    size_t index = 0;   // index of the stop string
    int64_t begin = 0;  // its first byte
    int64_t end = 0;    // one past its last byte
  };

  // No string may be empty; without strings the filter never matches.
  explicit StopStringFilter(std::vector<std::string> stop_strings);

  // Searches more text. Returns the match that ends first; of matches that end together, the
  // longest. No calls after a match.
  std::optional<Match> Append(std::string_view text);

  // Returns the number of bytes, from the start, that no later match can contain.
  int64_t releasable() const { return length_ - held_; }

  const std::string& stop_string(size_t index) const { return patterns_[index].text; }

 private:
  struct Pattern {
    std::string text;
    // borders[n]: length of the longest proper prefix of text[0, n) that is also its suffix.
    std::vector<int32_t> borders;
    int32_t matched = 0;  // longest prefix of text that the input ends with
  };

  std::vector<Pattern> patterns_;
  int64_t length_ = 0;
  int64_t held_ = 0;  // longest suffix of the input that begins a stop string
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_OUTPUT_STOP_STRING_FILTER_H_
