#include "server/rpc/output/row_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "model/base/float16.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename T>
std::vector<T> DataOf(const v1::ForwardRows& rows) {
  std::vector<T> values(rows.data().size() / sizeof(T));
  std::memcpy(values.data(), rows.data().data(), rows.data().size());
  return values;
}

RowFormat Format(v1::RowValues values, int64_t width) {
  RowFormat format;
  format.values = values;
  format.vocab_end = width;
  return format;
}

// The values of these rows.
std::vector<float> Encoded(const RowFormat& format, const std::vector<std::vector<float>>& rows) {
  RowEncoder encoder(format);
  v1::ForwardRows message;
  for (const std::vector<float>& row : rows) EXPECT_THAT(encoder.Append(row, message), IsOk());
  EXPECT_EQ(message.row_count(), rows.size());
  return DataOf<float>(message);
}

TEST(RowEncoderTest, LogitsGoOutAsTheyAre) {
  EXPECT_THAT(
      Encoded(Format(v1::ROW_VALUES_LOGITS, 3), {{1.5f, -0.0f, -kInfinity}, {4.0f, 5.0f, 6.0f}}),
      ElementsAre(1.5f, -0.0f, -kInfinity, 4.0f, 5.0f, 6.0f));
}

TEST(RowEncoderTest, LogProbabilitiesAreLogSoftmax) {
  const double log_sum = std::log(std::exp(-2.0) + std::exp(-1.0) + 1.0);
  // Shifted far off: nothing may overflow.
  EXPECT_THAT(Encoded(Format(v1::ROW_VALUES_LOG_PROBABILITIES, 3), {{1001.0f, 1002.0f, 1003.0f}}),
              ElementsAre(static_cast<float>(-2.0 - log_sum), static_cast<float>(-1.0 - log_sum),
                          static_cast<float>(-log_sum)));
}

TEST(RowEncoderTest, ProbabilitiesSumToOneOverTheWholeVocabularyAndKeepZeros) {
  RowFormat format = Format(v1::ROW_VALUES_PROBABILITIES, 3);
  EXPECT_THAT(Encoded(format, {{0.0f, 0.0f, -kInfinity}}), ElementsAre(0.5f, 0.5f, 0.0f));
  format.vocab_begin = 1;
  EXPECT_THAT(Encoded(format, {std::vector<float>(4, 2.0f)}), ElementsAre(0.25f, 0.25f));
}

TEST(RowEncoderTest, SixteenBitFormatsRoundToNearest) {
  RowFormat format = Format(v1::ROW_VALUES_LOGITS, 2);
  const std::vector<float> logits = {1.003f, -70000.0f};
  v1::ForwardRows bf16;
  format.dtype = v1::DATA_TYPE_BFLOAT16;
  EXPECT_EQ(format.row_bytes(), 4);
  ASSERT_THAT(RowEncoder(format).Append(logits, bf16), IsOk());
  EXPECT_THAT(DataOf<uint16_t>(bf16), ElementsAre(FloatToBf16(1.003f), FloatToBf16(-70000.0f)));
  v1::ForwardRows f16;
  format.dtype = v1::DATA_TYPE_FLOAT16;
  ASSERT_THAT(RowEncoder(format).Append(logits, f16), IsOk());
  EXPECT_THAT(DataOf<uint16_t>(f16), ElementsAre(FloatToF16(1.003f), 0xfc00));
}

TEST(RowEncoderTest, TopKListsTheLargestTiesByIdWithinTheSlice) {
  RowFormat format = Format(v1::ROW_VALUES_LOGITS, 5);
  format.vocab_begin = 1;
  format.top_k = 3;
  RowEncoder encoder(format);
  v1::ForwardRows rows;
  ASSERT_THAT(encoder.Append(std::vector<float>{9.0f, 1.0f, 3.0f, 3.0f, 2.0f}, rows), IsOk());
  EXPECT_THAT(rows.data(), IsEmpty());
  ASSERT_EQ(rows.top_size(), 1);
  EXPECT_THAT(rows.top(0).ids(), ElementsAre(2, 3, 4));
  EXPECT_THAT(rows.top(0).values(), ElementsAre(3.0f, 3.0f, 2.0f));
}

TEST(RowEncoderTest, TopKMayExceedTheWidth) {
  RowFormat format = Format(v1::ROW_VALUES_LOGITS, 2);
  format.top_k = 9;
  v1::ForwardRows rows;
  ASSERT_THAT(RowEncoder(format).Append(std::vector<float>{1.0f, 2.0f}, rows), IsOk());
  EXPECT_THAT(rows.top(0).ids(), ElementsAre(1, 0));
}

TEST(RowEncoderTest, RefusesLogitsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> bad = {{nan, 1.0f, 2.0f},
                                               {1.0f, nan, 2.0f},
                                               {1.0f, 2.0f, kInfinity},
                                               {-kInfinity, -kInfinity, -kInfinity}};
  for (const std::vector<float>& logits : bad) {
    v1::ForwardRows rows;
    EXPECT_THAT(RowEncoder(Format(v1::ROW_VALUES_LOGITS, 3)).Append(logits, rows),
                StatusIs(absl::StatusCode::kDataLoss, _));
  }
}

}  // namespace
}  // namespace tlm
