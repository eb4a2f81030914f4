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

TEST(StopStringFilterTest, HoldsBackTheLongestSuffixThatBeginsAStopString) {
  StopStringFilter filter({"STOP"});
  EXPECT_FALSE(filter.Append("abcS").has_value());
  EXPECT_EQ(filter.releasable(), 3);
  EXPECT_FALSE(filter.Append("TO").has_value());
  EXPECT_EQ(filter.releasable(), 3);
  EXPECT_FALSE(filter.Append("ST").has_value());
  EXPECT_EQ(filter.releasable(), 6);
  EXPECT_FALSE(filter.Append("x").has_value());
  EXPECT_EQ(filter.releasable(), 9);
}

TEST(StopStringFilterTest, FindsTheStringHoweverTheTextIsSplit) {
  const std::string text = "ababab\xe2\x82\xac!ababc rest";
  const std::string stop = "\xe2\x82\xac!ababc";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      StopStringFilter filter({stop});
      std::optional<Match> match;
      for (const std::string& piece :
           {text.substr(0, first), text.substr(first, second - first), text.substr(second)}) {
        EXPECT_LE(filter.releasable(), 6);
        if (!match.has_value()) match = filter.Append(piece);
      }
      ASSERT_TRUE(match.has_value()) << first << " " << second;
      EXPECT_EQ(match->begin, 6);
      EXPECT_EQ(match->end, 15);
    }
  }
}

TEST(StopStringFilterTest, FindsAStringThatOverlapsAFalseStart) {
  StopStringFilter filter({"aab"});
  const std::optional<Match> match = filter.Append("aaab");
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(match->begin, 1);
  EXPECT_EQ(match->end, 4);
}

TEST(StopStringFilterTest, TheMatchThatEndsFirstWins) {
  StopStringFilter filter({"bcdef", "cd"});
  const std::optional<Match> match = filter.Append("abcdef");
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(filter.stop_string(match->index), "cd");
  EXPECT_EQ(match->begin, 2);
}

TEST(StopStringFilterTest, OfMatchesThatEndTogetherTheLongestWins) {
  StopStringFilter filter({"c", "abc", "bc"});
  const std::optional<Match> match = filter.Append("xabc");
  ASSERT_TRUE(match.has_value());
  EXPECT_EQ(filter.stop_string(match->index), "abc");
  EXPECT_EQ(match->begin, 1);
}

// Against the definition: the least end, then the least begin; and everything released before a
// match stays before it.
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
    for (uint32_t i = 0; i < 1 + random() % 3; ++i) stops.push_back(word(3, 6));
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
    int64_t released = 0;
    for (size_t at = 0; at < text.size() && !match.has_value();) {
      const size_t length = std::min<size_t>(1 + random() % 5, text.size() - at);
      match = filter.Append(text.substr(at, length));
      at += length;
      if (!match.has_value()) released = filter.releasable();
    }
    ASSERT_EQ(match.has_value(), best_end >= 0) << text;
    if (!match.has_value()) continue;
    ++matched;
    EXPECT_EQ(match->begin, best_begin) << text;
    EXPECT_EQ(match->end, best_end) << text;
    EXPECT_LE(released, best_begin) << text;
  }
  EXPECT_GT(matched, 1000);
}

}  // namespace
}  // namespace tlm
