#include "server/rpc/output/stop_string_filter.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

std::vector<int32_t> BordersOf(const std::string& text) {
  std::vector<int32_t> borders(text.size() + 1, 0);
  int32_t border = 0;
  for (size_t n = 2; n <= text.size(); ++n) {
    const char last = text[n - 1];
    while (border > 0 && text[border] != last) border = borders[border];
    if (text[border] == last) ++border;
    borders[n] = border;
  }
  return borders;
}

}  // namespace

StopStringFilter::StopStringFilter(std::vector<std::string> stop_strings) {
  for (std::string& text : stop_strings) {
    TLM_CHECK(!text.empty());
    std::vector<int32_t> borders = BordersOf(text);
    patterns_.push_back({std::move(text), std::move(borders), 0});
  }
}

std::optional<StopStringFilter::Match> StopStringFilter::Append(std::string_view text) {
  for (const char byte : text) {
    ++length_;
    held_ = 0;
    std::optional<Match> longest;
    for (size_t index = 0; index < patterns_.size(); ++index) {
      Pattern& pattern = patterns_[index];
      int32_t& matched = pattern.matched;
      while (matched > 0 && pattern.text[matched] != byte) matched = pattern.borders[matched];
      if (pattern.text[matched] == byte) ++matched;
      held_ = std::max<int64_t>(held_, matched);
      if (matched == static_cast<int32_t>(pattern.text.size())) {
        const int64_t begin = length_ - matched;
        if (!longest.has_value() || begin < longest->begin) longest = Match{index, begin, length_};
      }
    }
    if (longest.has_value()) return longest;
  }
  return std::nullopt;
}

}  // namespace tlm
