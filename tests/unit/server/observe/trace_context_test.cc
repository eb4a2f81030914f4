#include "server/observe/trace_context.h"

#include <gtest/gtest.h>

#include <vector>

namespace tlm {
namespace {

constexpr std::string_view kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr std::string_view kParent = "00f067aa0ba902b7";

uint64_t Next() {
  static uint64_t number = 0x1111;
  return ++number;
}

std::string Header(std::string_view version, std::string_view flags, std::string_view rest = "") {
  return std::string(version) + "-" + std::string(kTrace) + "-" + std::string(kParent) + "-" +
         std::string(flags) + std::string(rest);
}

bool Takes(std::string_view header) {
  return !TraceContextFrom(header, Next).parent_span_id.empty();
}

TEST(TraceContextTest, GoesOnWithTheCallersTraceInASpanOfItsOwn) {
  const TraceContext trace = TraceContextFrom(Header("00", "01"), Next);
  EXPECT_EQ(trace.trace_id, kTrace);
  EXPECT_EQ(trace.parent_span_id, kParent);
  EXPECT_NE(trace.span_id, kParent);
  EXPECT_EQ(trace.span_id.size(), 16u);
  EXPECT_TRUE(trace.sampled);
}

TEST(TraceContextTest, PassesOnTheTraceWithItsOwnSpan) {
  const TraceContext trace = TraceContextFrom(Header("00", "01"), Next);
  EXPECT_EQ(trace.Traceparent(), "00-" + trace.trace_id + "-" + trace.span_id + "-01");
}

TEST(TraceContextTest, ReadsTheLowestFlagAlone) {
  EXPECT_FALSE(TraceContextFrom(Header("00", "00"), Next).sampled);
  EXPECT_FALSE(TraceContextFrom(Header("00", "fe"), Next).sampled);
  EXPECT_TRUE(TraceContextFrom(Header("00", "ff"), Next).sampled);
  EXPECT_TRUE(TraceContextFrom(Header("00", "03"), Next).sampled);
}

TEST(TraceContextTest, BeginsATraceWhenThereIsNone) {
  const TraceContext first = TraceContextFrom("", Next);
  const TraceContext second = TraceContextFrom("", Next);
  EXPECT_EQ(first.trace_id.size(), 32u);
  EXPECT_NE(first.trace_id, second.trace_id);
  EXPECT_EQ(first.parent_span_id, "");
  EXPECT_FALSE(first.sampled);
}

TEST(TraceContextTest, NeverDrawsIdsOfZeros) {
  int calls = 0;
  const auto random = [&calls]() -> uint64_t { return ++calls % 2 == 0 ? 5 : 0; };
  const TraceContext trace = TraceContextFrom("", random);
  EXPECT_EQ(trace.span_id, "0000000000000005");
  EXPECT_NE(trace.trace_id, std::string(32, '0'));
}

TEST(TraceContextTest, TakesVersionsToComeAsFarAsItKnowsThem) {
  EXPECT_TRUE(Takes(Header("cc", "01")));
  EXPECT_TRUE(Takes(Header("cc", "01", "-what-the-future-will-be-like")));
  EXPECT_TRUE(Takes(Header("fe", "01", "-")));
  EXPECT_FALSE(Takes(Header("cc", "01", ".what-the-future-will-be-like")));
  EXPECT_FALSE(Takes(Header("cc", "01", "0")));
}

TEST(TraceContextTest, RefusesVersionZeroWithMoreBehindIt) {
  EXPECT_FALSE(Takes(Header("00", "01", "-more")));
  EXPECT_FALSE(Takes(Header("00", "01", "-")));
  EXPECT_FALSE(Takes(Header("00", "01", " ")));
}

TEST(TraceContextTest, RefusesTheVersionThatIsForbidden) {
  EXPECT_FALSE(Takes(Header("ff", "01")));
}

TEST(TraceContextTest, RefusesUpperCase) {
  EXPECT_FALSE(Takes("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(Takes("00-4bf92f3577b34da6a3ce929d0e0e4736-00F067AA0BA902B7-01"));
  EXPECT_FALSE(Takes(Header("CC", "01")));
  EXPECT_FALSE(Takes(Header("00", "0A")));
}

TEST(TraceContextTest, RefusesIdsOfZeros) {
  EXPECT_FALSE(Takes("00-00000000000000000000000000000000-00f067aa0ba902b7-01"));
  EXPECT_FALSE(Takes("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"));
}

TEST(TraceContextTest, RefusesWhatIsNotHexadecimal) {
  EXPECT_FALSE(Takes("00-.bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
  EXPECT_FALSE(Takes("00-4bf92f3577b34da6a3ce929d0e0e4736-.0f067aa0ba902b7-01"));
  EXPECT_FALSE(Takes(Header("0.", "01")));
  EXPECT_FALSE(Takes(Header("00", ".1")));
  EXPECT_FALSE(Takes(Header("00", "1.")));
}

TEST(TraceContextTest, RefusesEveryHeaderThatIsCutShort) {
  const std::string whole = Header("00", "01");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(Takes(whole.substr(0, length))) << length;
  }
  EXPECT_TRUE(Takes(whole));
}

TEST(TraceContextTest, RefusesOtherSeparators) {
  std::string header = Header("00", "01");
  for (const size_t at : {2, 35, 52}) {
    std::string other = header;
    other[at] = '_';
    EXPECT_FALSE(Takes(other)) << at;
  }
}

TEST(JoinTracestateTest, KeepsWhatVendorsWroteInOrder) {
  const std::vector<std::string_view> parts = {"rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE,a=b"};
  EXPECT_EQ(JoinTracestate(parts), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,a=b");
  EXPECT_EQ(JoinTracestate({}), "");
}

TEST(JoinTracestateTest, DropsWhatIsTooLong) {
  const std::string half(kMaxTracestateBytes / 2, 'x');
  const std::vector<std::string_view> fits = {half};
  const std::vector<std::string_view> too_long = {half, half};
  EXPECT_EQ(JoinTracestate(fits), half);
  EXPECT_EQ(JoinTracestate(too_long), "");
}

TEST(JoinTracestateTest, DropsWhatIsNotPrintable) {
  for (const std::string_view bad : {"a=\x01", "a=\n", "a=\xc3\xa9", "a=\x7f"}) {
    const std::vector<std::string_view> parts = {"b=1", bad};
    EXPECT_EQ(JoinTracestate(parts), "");
  }
}

}  // namespace
}  // namespace tlm
