#include "client/cli/base/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace tlm::cli {
namespace {

TEST(TableTest, AlignsColumns) {
  Table table({Align::kLeft, Align::kRight, Align::kLeft});
  table.AddRow({"a", "1", "x"});
  table.AddRow({"long", "1,000"});
  table.AddRow({"日本", "22", "y"});
  std::ostringstream out;
  table.Print(out, 2);
  EXPECT_EQ(out.str(),
            "  a         1  x\n"
            "  long  1,000\n"
            "  日本     22  y\n");
}

TEST(TableTest, LeavesNoSpacesAtLineEnds) {
  Table table({Align::kLeft, Align::kLeft});
  table.AddRow({"a", ""});
  table.AddRow({"b", "wide"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(), "a\nb  wide\n");
}

TEST(NumbersTest, SeparatesThousands) {
  EXPECT_EQ(WithSeparators(0), "0");
  EXPECT_EQ(WithSeparators(999), "999");
  EXPECT_EQ(WithSeparators(1000), "1,000");
  EXPECT_EQ(WithSeparators(1557611200), "1,557,611,200");
  EXPECT_EQ(WithSeparators(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(NumbersTest, ScalesCounts) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(999), "999");
  EXPECT_EQ(HumanCount(3506703564800.0), "3.51 T");
  EXPECT_EQ(HumanCount(1.8e19), "18.00 E");
}

TEST(NumbersTest, ScalesParameters) {
  EXPECT_EQ(HumanParameters(999), "999");
  EXPECT_EQ(HumanParameters(4952064), "4.95 M");
  EXPECT_EQ(HumanParameters(596049920), "596.0 M");
  EXPECT_EQ(HumanParameters(1557611200), "1.56 B");
  EXPECT_EQ(HumanParameters(1'000'000'000'000), "1.00 T");
}

TEST(NumbersTest, SeparatesThousandsOfRates) {
  EXPECT_EQ(WithSeparators(0.04, 1), "0.0");
  EXPECT_EQ(WithSeparators(999.96, 1), "1,000.0");
  EXPECT_EQ(WithSeparators(1234567.5, 0), "1,234,568");
  EXPECT_EQ(WithSeparators(-123456.0, 1), "-123,456.0");
  EXPECT_EQ(WithSeparators(std::nan(""), 1), "-");
}

TEST(NumbersTest, RoundsPercentages) { EXPECT_EQ(Percent(0.5744), "57.4 %"); }

TEST(TableTest, ShowsTimesWithThreeDigits) {
  EXPECT_EQ(HumanSeconds(0), "0.000 ms");
  EXPECT_EQ(HumanSeconds(0.0000421), "0.042 ms");
  EXPECT_EQ(HumanSeconds(0.0012), "1.20 ms");
  EXPECT_EQ(HumanSeconds(0.0123), "12.3 ms");
  EXPECT_EQ(HumanSeconds(0.999), "999 ms");
  EXPECT_EQ(HumanSeconds(0.9999), "1.00 s");
  EXPECT_EQ(HumanSeconds(65.23), "65.2 s");
  EXPECT_EQ(HumanSeconds(3600), "3600 s");
}

}  // namespace
}  // namespace tlm::cli
