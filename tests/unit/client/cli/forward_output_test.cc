#include "client/cli/forward_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

namespace tlm::cli {
namespace {

using testing::ElementsAre;

TEST(TopOfRowTest, OrdersByValueThenId) {
  const std::vector<float> row = {1, 3, 2, 3, -1};
  const v1::TopValues top = TopOfRow(row, 4, 0);
  EXPECT_THAT(top.ids(), ElementsAre(1, 3, 2, 0));
  EXPECT_THAT(top.values(), ElementsAre(3, 3, 2, 1));
}

TEST(TopOfRowTest, AddsFirstIdAndStopsAtRowEnd) {
  const std::vector<float> row = {1, 2};
  EXPECT_THAT(TopOfRow(row, 10, 100).ids(), ElementsAre(101, 100));
}

TEST(TopOfRowTest, PutsNanLast) {
  const std::vector<float> row = {NAN, -INFINITY, 1, NAN};
  EXPECT_THAT(TopOfRow(row, 4, 0).ids(), ElementsAre(2, 1, 0, 3));
}

TEST(PrintTopTableTest, PrintsOneLineACandidate) {
  client::ForwardResult result;
  result.header.set_values(v1::ROW_VALUES_PROBABILITIES);
  result.rows = {{0, 4}, {1, 2}};
  result.top.resize(2);
  result.top[0].add_ids(7);
  result.top[0].add_values(0.5f);
  result.top[1].add_ids(11);
  result.top[1].add_values(0.25f);
  std::ostringstream out;
  PrintTopTable(
      result, [](uint32_t id) { return id == 7 ? "\" a\"" : ""; }, out);
  EXPECT_EQ(out.str(),
            "sequence  position  rank  id  probability  token\n"
            "       0         4     1   7          0.5  \" a\"\n"
            "       1         2     1  11         0.25\n");
}

}  // namespace
}  // namespace tlm::cli
