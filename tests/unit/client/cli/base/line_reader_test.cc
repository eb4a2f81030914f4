#include "client/cli/base/line_reader.h"

#include <gtest/gtest.h>

#include <sstream>

namespace tlm::cli {
namespace {

constexpr size_t kMaxBytes = 10;

TEST(ReadLineTest, ReturnsLinesWithoutTheirEnds) {
  std::istringstream in("one\n\ntwo\r\nno end");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "one");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "two");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "no end");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
}

TEST(ReadLineTest, GoesOnAfterInvalidUtf8) {
  std::istringstream in("a\xff\xfe\nna\xc3\xafve\n\xe6\x97");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "naïve");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
}

TEST(ReadLineTest, GoesOnAfterLongLines) {
  std::istringstream in("0123456789\n01234567890\nnext\n01234567890");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "0123456789");
  const auto status = ReadLine(&in, kMaxBytes).status();
  EXPECT_EQ(std::string(status.message()), "the line is longer than 10 bytes");
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), "next");
  EXPECT_FALSE(ReadLine(&in, kMaxBytes).ok());
  EXPECT_EQ(ReadLine(&in, kMaxBytes).value(), std::nullopt);
}

}  // namespace
}  // namespace tlm::cli
