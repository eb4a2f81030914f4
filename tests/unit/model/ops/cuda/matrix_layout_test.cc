#include "model/ops/cuda/weights/matrix_layout.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tlm {
namespace {

TEST(MatrixLayoutTest, RowsBeginAtMultiplesOf16Bytes) {
  EXPECT_EQ(MatrixLayout(4, 64, DType::kBF16, MatrixUse::kPlain).row_stride(), 64);
  EXPECT_EQ(MatrixLayout(4, 65, DType::kBF16, MatrixUse::kPlain).row_stride(), 72);
  EXPECT_EQ(MatrixLayout(4, 65, DType::kF16, MatrixUse::kPlain).row_stride(), 72);
  EXPECT_EQ(MatrixLayout(4, 65, DType::kF32, MatrixUse::kPlain).row_stride(), 68);
  EXPECT_EQ(MatrixLayout(4, 1, DType::kF32, MatrixUse::kPlain).row_stride(), 4);
  EXPECT_EQ(MatrixLayout(3, 65, DType::kBF16, MatrixUse::kPlain).bytes(), 3u * 72 * 2);
}

TEST(MatrixLayoutTest, BytesThatDoNotFitBecomeTheMost) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(MatrixLayout(most, int64_t{1} << 40, DType::kF32, MatrixUse::kPlain).bytes(),
            std::numeric_limits<size_t>::max());
}

TEST(MatrixLayoutTest, PlainRowsAreTheOutputs) {
  const MatrixLayout layout(5, 8, DType::kBF16, MatrixUse::kPlain);
  for (int64_t row = 0; row < 5; ++row) {
    EXPECT_EQ(layout.OutputOfRow(row), row);
    EXPECT_EQ(layout.RowOfOutput(row), row);
  }
}

TEST(MatrixLayoutTest, GatedRowsAlternateBy16) {
  const MatrixLayout layout(96, 8, DType::kBF16, MatrixUse::kGated);
  EXPECT_EQ(layout.OutputOfRow(0), 0);
  EXPECT_EQ(layout.OutputOfRow(15), 15);
  EXPECT_EQ(layout.OutputOfRow(16), 48);
  EXPECT_EQ(layout.OutputOfRow(31), 63);
  EXPECT_EQ(layout.OutputOfRow(32), 16);
  EXPECT_EQ(layout.OutputOfRow(95), 95);
}

TEST(MatrixLayoutTest, TheLastGroupOfAGatedMatrixIsAsNarrowAsWhatIsLeft) {
  const MatrixLayout layout(40, 8, DType::kBF16, MatrixUse::kGated);  // 16 and 4 of each
  EXPECT_EQ(layout.OutputOfRow(32), 16);
  EXPECT_EQ(layout.OutputOfRow(35), 19);
  EXPECT_EQ(layout.OutputOfRow(36), 36);
  EXPECT_EQ(layout.OutputOfRow(39), 39);
}

TEST(MatrixLayoutTest, EveryGatedOutputHasOneRow) {
  for (int64_t half = 1; half <= 67; ++half) {
    const MatrixLayout layout(2 * half, 8, DType::kF16, MatrixUse::kGated);
    std::vector<int> seen(2 * half);
    for (int64_t row = 0; row < 2 * half; ++row) {
      const int64_t output = layout.OutputOfRow(row);
      ASSERT_TRUE(output >= 0 && output < 2 * half) << "half " << half << " row " << row;
      ++seen[output];
      EXPECT_EQ(layout.RowOfOutput(output), row) << "half " << half;
    }
    for (const int count : seen) EXPECT_EQ(count, 1) << "half " << half;
  }
}

}  // namespace
}  // namespace tlm
