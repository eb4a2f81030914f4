#include "server/rpc/output/stop_string_filter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tlm {
namespace {

using Match = StopStringFilter::Match;

TEST(StopStringFilterTest, WithoutStringsReleasesEverything) {
  StopStringFilter filter({});
  EXPECT_FALSE(filter.Append("abc").has_value());
  EXPECT_EQ(filter.releasable(), 3);
}

// Against the definition: the least end, then the least begin. Held back is the longest end of the
// text that begins a stop string.
TEST(StopStringFilterTest, AgreesWithBruteForceOnRandomTexts) {
  std::mt19937 random(7);
  const auto word = [&](int least, int most) {
    std::string text(least + random() % (most - least + 1), 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int matched = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(word(1, 6));
    const std::string text = word(0, 24);
    int64_t best_begin = -1, best_end = -1;
    for (const std::string& stop : stops) {
      const size_t begin = text.find(stop);
      if (begin == std::string::npos) continue;
      const int64_t end = static_cast<int64_t>(begin + stop.size());
      const int64_t b = static_cast<int64_t>(begin);
      if (best_end < 0 || end < best_end || (end == best_end && b < best_begin)) {
        best_begin = b;
        best_end = end;
      }
    }
    StopStringFilter filter(stops);
    std::optional<Match> match;
    for (size_t at = 0; at < text.size() && !match.has_value();) {
      const size_t length = std::min<size_t>(1 + random() % 5, text.size() - at);
      match = filter.Append(text.substr(at, length));
      at += length;
      if (match.has_value()) break;
      size_t held = std::min<size_t>(at, 6);
      const auto begins = [&](const std::string& stop) {
        return stop.starts_with(text.substr(at - held, held));
      };
      while (std::ranges::none_of(stops, begins)) --held;
      EXPECT_EQ(filter.releasable(), static_cast<int64_t>(at - held)) << text;
    }
    ASSERT_EQ(match.has_value(), best_end >= 0) << text;
    if (!match.has_value()) continue;
    ++matched;
    EXPECT_EQ(match->begin, best_begin) << text;
    EXPECT_EQ(match->end, best_end) << text;
    EXPECT_EQ(filter.stop_string(match->index), text.substr(best_begin, best_end - best_begin));
  }
  EXPECT_GT(matched, 1000);
}

}  // namespace
}  // namespace tlm
