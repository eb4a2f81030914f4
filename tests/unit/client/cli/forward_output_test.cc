#include "client/cli/forward_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

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

using testing::HasSubstr;

TEST(NpyTest, HeaderFollowsTheFormat) {
  for (const auto& [rows, columns] :
       {std::pair<size_t, size_t>{1, 1}, {3, 50257}, {0, 8}, {123456789, 151936}}) {
    const std::string header = NpyHeader(rows, columns);
    EXPECT_EQ(header.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
    const size_t length = static_cast<unsigned char>(header[8]) +
                          256 * static_cast<size_t>(static_cast<unsigned char>(header[9]));
    EXPECT_EQ(header.size(), 10 + length);
    EXPECT_EQ(header.size() % 64, 0u);
    EXPECT_EQ(header.back(), '\n');
    EXPECT_THAT(header, HasSubstr("'descr': '<f4'"));
    EXPECT_THAT(header, HasSubstr("'fortran_order': False"));
    EXPECT_THAT(header, HasSubstr("'shape': (" + std::to_string(rows) + ", " +
                                  std::to_string(columns) + ")"));
  }
}

TEST(NpyTest, WritesHeaderAndValues) {
  const std::string path = testing::TempDir() + "npy_test.npy";
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteNpy(path, values, 3).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const std::string header = NpyHeader(2, 3);
  ASSERT_EQ(bytes.size(), header.size() + sizeof(float) * values.size());
  EXPECT_EQ(bytes.substr(0, header.size()), header);
  EXPECT_EQ(std::memcmp(bytes.data() + header.size(), values.data(), sizeof(float) * 6), 0);
}

TEST(NpyTest, TellsWhenTheFileCannotBeMade) {
  const absl::Status status = WriteNpy("/nonexistent/x.npy", {}, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/x.npy"));
}

TEST(NpyTest, TellsWhenTheDiskIsFull) {
  const std::vector<float> values(1 << 16);
  EXPECT_EQ(WriteNpy("/dev/full", values, 1).code(), absl::StatusCode::kDataLoss);
}

}  // namespace

}  // namespace tlm::cli
