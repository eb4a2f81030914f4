#include "client/cpp/forward_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tlm::client {
namespace {

using testing::ElementsAre;

v1::ForwardResponse Header(uint64_t rows, uint32_t width,
                           v1::DataType dtype = v1::DATA_TYPE_FLOAT32) {
  v1::ForwardResponse response;
  response.mutable_header()->set_rows_total(rows);
  response.mutable_header()->set_row_width(width);
  response.mutable_header()->set_dtype(dtype);
  return response;
}

template <typename T>
v1::ForwardResponse Rows(uint32_t sequence, uint32_t position, uint32_t count,
                         const std::vector<T>& values) {
  v1::ForwardResponse response;
  response.mutable_rows()->set_sequence_index(sequence);
  response.mutable_rows()->set_first_position(position);
  response.mutable_rows()->set_row_count(count);
  response.mutable_rows()->set_data(values.data(), values.size() * sizeof(T));
  return response;
}

v1::ForwardResponse Summary() {
  v1::ForwardResponse response;
  response.mutable_summary();
  return response;
}

TEST(ForwardCollectorTest, PutsChunksTogether) {
  ForwardCollector collector(100);
  ASSERT_TRUE(collector.Add(Header(3, 2)).ok());
  ASSERT_TRUE(collector.Add(Rows<float>(0, 5, 2, {1, 2, 3, 4})).ok());
  ASSERT_TRUE(collector.Add(Rows<float>(1, 0, 1, {5, 6})).ok());
  ASSERT_TRUE(collector.Add(Summary()).ok());
  ASSERT_TRUE(collector.CheckComplete().ok());
  const ForwardResult result = collector.TakeResult();
  EXPECT_THAT(result.rows, ElementsAre(RowIndex{0, 5}, RowIndex{0, 6}, RowIndex{1, 0}));
  EXPECT_THAT(result.values, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(result.Row(2), ElementsAre(5, 6));
}

TEST(ForwardCollectorTest, WidensBfloat16) {
  ForwardCollector collector(100);
  ASSERT_TRUE(collector.Add(Header(1, 4, v1::DATA_TYPE_BFLOAT16)).ok());
  ASSERT_TRUE(collector.Add(Rows<uint16_t>(0, 0, 1, {0x3f80, 0xc000, 0x0000, 0x7f80})).ok());
  EXPECT_THAT(collector.TakeResult().values,
              ElementsAre(1.0f, -2.0f, 0.0f, std::numeric_limits<float>::infinity()));
}

TEST(ForwardCollectorTest, WidensFloat16) {
  ForwardCollector collector(100);
  ASSERT_TRUE(collector.Add(Header(1, 7, v1::DATA_TYPE_FLOAT16)).ok());
  // 1, -2, the largest, the smallest normal, the smallest subnormal, -infinity, NaN.
  ASSERT_TRUE(
      collector
          .Add(Rows<uint16_t>(0, 0, 1, {0x3c00, 0xc000, 0x7bff, 0x0400, 0x0001, 0xfc00, 0x7e00}))
          .ok());
  const ForwardResult result = collector.TakeResult();
  EXPECT_THAT(std::vector<float>(result.values.begin(), result.values.begin() + 6),
              ElementsAre(1.0f, -2.0f, 65504.0f, std::ldexp(1.0f, -14), std::ldexp(1.0f, -24),
                          -std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::isnan(result.values[6]));
}

TEST(ForwardCollectorTest, CollectsTopLists) {
  ForwardCollector collector(100);
  ASSERT_TRUE(collector.Add(Header(1, 0)).ok());
  v1::ForwardResponse response;
  response.mutable_rows()->set_row_count(1);
  response.mutable_rows()->add_top()->add_ids(7);
  ASSERT_TRUE(collector.Add(response).ok());
  ASSERT_TRUE(collector.Add(Summary()).ok());
  EXPECT_TRUE(collector.CheckComplete().ok());
  EXPECT_EQ(collector.TakeResult().top.at(0).ids(0), 7u);
}

TEST(ForwardCollectorTest, RefusesWhatContradictsTheHeader) {
  const auto code_of = [](const v1::ForwardResponse& header, const v1::ForwardResponse& rows) {
    ForwardCollector collector(100);
    EXPECT_TRUE(collector.Add(header).ok());
    return collector.Add(rows).code();
  };
  constexpr auto kInternal = absl::StatusCode::kInternal;
  EXPECT_EQ(code_of(Header(1, 2), Rows<float>(0, 0, 1, {1})), kInternal);        // too short
  EXPECT_EQ(code_of(Header(1, 2), Rows<float>(0, 0, 1, {1, 2, 3})), kInternal);  // too long
  EXPECT_EQ(code_of(Header(1, 2), Rows<char>(0, 0, 1, std::vector<char>(9))), kInternal);
  EXPECT_EQ(code_of(Header(1, 2), Rows<float>(0, 0, 2, {1, 2, 3, 4})), kInternal);  // surplus row
  EXPECT_EQ(code_of(Header(1, 2), Rows<float>(0, 0, 0, {})), kInternal);            // no row
  EXPECT_EQ(code_of(Header(1, 0), Rows<float>(0, 0, 1, {})), kInternal);            // no columns
  EXPECT_EQ(code_of(Header(1, 2, v1::DATA_TYPE_UNSPECIFIED), Rows<float>(0, 0, 1, {1, 2})),
            kInternal);
  // Factors whose product does not fit 32 bits.
  EXPECT_EQ(code_of(Header(UINT64_MAX, 0x80000000u), Rows<float>(0, 0, 2, {})), kInternal);
}

TEST(ForwardCollectorTest, RefusesRowsWithoutHeader) {
  ForwardCollector collector(100);
  EXPECT_EQ(collector.Add(Rows<float>(0, 0, 1, {1})).code(), absl::StatusCode::kInternal);
}

TEST(ForwardCollectorTest, StopsAtItsLimit) {
  ForwardCollector collector(5);
  ASSERT_TRUE(collector.Add(Header(3, 2)).ok());
  ASSERT_TRUE(collector.Add(Rows<float>(0, 0, 2, {1, 2, 3, 4})).ok());
  EXPECT_EQ(collector.Add(Rows<float>(0, 2, 1, {5, 6})).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(ForwardCollectorTest, NoticesMissingRowsAndSummary) {
  ForwardCollector collector(100);
  EXPECT_FALSE(collector.CheckComplete().ok());
  ASSERT_TRUE(collector.Add(Header(2, 1)).ok());
  ASSERT_TRUE(collector.Add(Rows<float>(0, 0, 1, {1})).ok());
  ASSERT_TRUE(collector.Add(Summary()).ok());
  EXPECT_FALSE(collector.CheckComplete().ok());
}

}  // namespace
}  // namespace tlm::client
