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
}

TEST(TraceContextTest, RefusesWhatTheSpecificationForbids) {
  const std::string trace(kTrace);
  const std::string parent(kParent);
  for (const std::string& header : {
           Header("cc", "01", ".what-the-future-will-be-like"),
           Header("cc", "01", "0"),
           // More after version 0, and the version that is forbidden.
           Header("00", "01", "-more"),
           Header("00", "01", "-"),
           Header("00", "01", " "),
           Header("ff", "01"),
           // Upper case.
           "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + parent + "-01",
           "00-" + trace + "-00F067AA0BA902B7-01",
           Header("CC", "01"),
           Header("00", "0A"),
           // Ids of zeros.
           "00-" + std::string(32, '0') + "-" + parent + "-01",
           "00-" + trace + "-" + std::string(16, '0') + "-01",
           // What is not hexadecimal.
           "00-.bf92f3577b34da6a3ce929d0e0e4736-" + parent + "-01",
           "00-" + trace + "-.0f067aa0ba902b7-01",
           Header("0.", "01"),
           Header("00", ".1"),
           Header("00", "1."),
       }) {
    EXPECT_FALSE(Takes(header)) << header;
  }
}

TEST(TraceContextTest, RefusesEveryHeaderThatIsCutShort) {
  const std::string whole = Header("00", "01");
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(Takes(whole.substr(0, length))) << length;
  }
  EXPECT_TRUE(Takes(whole));
}

TEST(TraceContextTest, RefusesOtherSeparators) {
  for (const size_t at : {2, 35, 52}) {
    std::string header = Header("00", "01");
    header[at] = '_';
    EXPECT_FALSE(Takes(header)) << at;
  }
}

TEST(JoinTracestateTest, KeepsWhatVendorsWroteInOrder) {
  const std::vector<std::string_view> parts = {"rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE,a=b"};
  EXPECT_EQ(JoinTracestate(parts), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE,a=b");
  EXPECT_EQ(JoinTracestate({}), "");
}

TEST(JoinTracestateTest, DropsWhatIsTooLongOrNotPrintable) {
  const std::string half(kMaxTracestateBytes / 2, 'x');
  EXPECT_EQ(JoinTracestate(std::vector<std::string_view>{half}), half);
  for (const std::string_view bad :
       {std::string_view(half), std::string_view("a=\x01"), std::string_view("a=\n"),
        std::string_view("a=\xc3\xa9"), std::string_view("a=\x7f")}) {
    EXPECT_EQ(JoinTracestate(std::vector<std::string_view>{half, bad}), "") << bad;
  }
}

}  // namespace
}  // namespace tlm
