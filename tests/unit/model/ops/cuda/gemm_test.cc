#include "model/ops/cuda/gemm/gemm.h"

#include <gtest/gtest.h>

#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "tests/unit/model/ops/cuda/gemm_fixture.h"

namespace tlm {
namespace {

// Around the borders of tiles; on a GPU many more than it has multiprocessors.
std::vector<int64_t> RowCounts() {
  std::vector<int64_t> counts = {1, 2, 7, 8, 9, 16, 17, 31, 33, 63, 64, 65, 96, 128, 129};
  if (RunsOnGpu()) counts.insert(counts.end(), {192, 256, 257, 512, 1000});
  return counts;
}

class GemmTest : public GemmFixture {};

std::vector<float> BiasOf(int64_t n) { return RandomNumbers(1, n, DType::kF32, 77).values; }

Numbers FirstRows(const Numbers& numbers, int64_t rows) {
  Numbers first = numbers;
  first.rows = rows;
  first.values.resize(rows * numbers.cols);
  return first;
}

TEST_F(GemmTest, MatrixUnitsSumKInOrderBy16) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Numbers w = RandomNumbers(40, 328, dtype, 1);
    const Numbers x = RandomNumbers(RowCounts().back(), 328, dtype, 2);
    const Numbers expected = ExpectedProduct(x, w, {}, std::nullopt, dtype);
    for (const int64_t m : RowCounts()) {
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " m " << m);
      ExpectSameBits(Multiply(FirstRows(x, m), w), FirstRows(expected, m));
    }
  }
}

TEST_F(GemmTest, WithoutMatrixUnitsKIsSummedOneByOne) {
  struct Case {
    DType dtype;
    int64_t n, k;
  };
  for (const Case c :
       {Case{DType::kF32, 40, 152}, Case{DType::kF32, 37, 151}, Case{DType::kBF16, 37, 152},
        Case{DType::kBF16, 40, 301}, Case{DType::kF16, 33, 131}, Case{DType::kF32, 1, 1}}) {
    const Numbers w = RandomNumbers(c.n, c.k, c.dtype, 3);
    const Numbers x = RandomNumbers(129, c.k, c.dtype, 4);
    const Numbers expected = ExpectedProduct(x, w, {}, std::nullopt, c.dtype);
    for (const int64_t m : {1, 2, 8, 9, 64, 65, 129}) {
      SCOPED_TRACE(testing::Message()
                   << DTypeName(c.dtype) << " " << c.n << " x " << c.k << " m " << m);
      ExpectSameBits(Multiply(FirstRows(x, m), w), FirstRows(expected, m));
    }
  }
}

TEST_F(GemmTest, RowsDoNotSeeTheirMates) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Numbers w = RandomNumbers(48, 136, dtype, 7);
    const Numbers one = RandomNumbers(1, 136, dtype, 8);
    const Numbers alone = Multiply(one, w);
    for (const int64_t m : RowCounts()) {
      for (const int64_t place : {int64_t{0}, m / 2, m - 1}) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " row " << place << " of " << m);
        Numbers x = Unwritten(m, 136, dtype);
        std::fill(x.values.begin(), x.values.end(), nan);
        std::copy(one.values.begin(), one.values.end(), &x.at(place, 0));
        const Numbers out = Multiply(x, w);
        Numbers row{1, 48, dtype, {}};
        for (int64_t j = 0; j < 48; ++j) row.values.push_back(out.at(place, j));
        ExpectSameBits(row, alone);
      }
    }
  }
}

TEST_F(GemmTest, EveryShapeOfTileGivesTheSameBits) {
  // Tiles of 16, 32 and 64 rows, in one round and in many, and stages that do not fill the ring.
  for (const int multiprocessors : {1, 2, 3, 40, device_->properties().multiprocessors}) {
    Open(multiprocessors);
    for (const int64_t k : {8, 40, 136, 1048}) {
      const Numbers w = RandomNumbers(152, k, DType::kBF16, 9);
      const Numbers x = RandomNumbers(65, k, DType::kBF16, 10);
      const Numbers expected = ExpectedProduct(x, w, {}, std::nullopt, DType::kBF16);
      for (const int64_t m : {1, 9, 17, 33, 65}) {
        SCOPED_TRACE(testing::Message() << multiprocessors << " k " << k << " m " << m);
        ExpectSameBits(Multiply(FirstRows(x, m), w), FirstRows(expected, m));
      }
    }
  }
}

TEST_F(GemmTest, ManyTilesOfManyRowsAreAllComputed) {
  Open(1);
  const Numbers w = RandomNumbers(264, 40, DType::kBF16, 11);
  const Numbers x = RandomNumbers(300, 40, DType::kBF16, 12);
  ExpectSameBits(Multiply(x, w), ExpectedProduct(x, w, {}, std::nullopt, DType::kBF16));
}

// The emulated GPU fails a kernel that prefetches what is not its matrix's.
TEST_F(GemmTest, PrefetchesEndWithTheMatrix) {
  for (const int64_t k : {776, 1424, 2048}) {
    const Numbers w = RandomNumbers(40, k, DType::kBF16, 21);
    const Numbers x = RandomNumbers(3, k, DType::kBF16, 22);
    const Numbers expected = ExpectedProduct(x, w, {}, std::nullopt, DType::kBF16);
    const std::unique_ptr<CudaMatrix> matrix = Pack(w);
    const DeviceRows in(*device_, x, 8, Stride(x));
    for (const int tile : {0, 1}) {
      for (const int32_t bytes : {16, 640, kMaxPrefetchBytes}) {
        SCOPED_TRACE(testing::Message() << "k " << k << " tile " << tile << " bytes " << bytes);
        DeviceRows out(*device_, Unwritten(3, 40, DType::kBF16), 16, 64);
        const int row_tiles = (40 + kMmaTiles[tile].rows - 1) / kMmaTiles[tile].rows;
        const GemmArgs args{
            .x = in.rows().data,
            .x_stride = in.rows().stride,
            .m = 3,
            .w = matrix->data(),
            .w_stride = matrix->layout().row_stride(),
            .n = 40,
            .k = k,
            .output = {.out = out.rows().data, .out_stride = out.rows().stride},
            .row_tiles = row_tiles,
            .token_tiles = 1,
            .prefetch_bytes = bytes,
        };
        ASSERT_EQ(LaunchGemmMma(args, DType::kBF16, tile, row_tiles, device_->compute_stream()),
                  cudaSuccess);
        ExpectSameBits(out.Read(), expected);
      }
    }
  }
}

// However outputs lie, whatever is stored at once.
TEST_F(GemmTest, OutputsMayLieAnywhere) {
  struct Place {
    int64_t begin, stride;
  };
  for (const int64_t n : {40, 37}) {
    const Numbers w = RandomNumbers(n, 72, DType::kBF16, 23);
    const Numbers x = RandomNumbers(66, 72, DType::kBF16, 24);
    const std::unique_ptr<CudaMatrix> matrix = Pack(w);
    const DeviceRows in(*device_, x, 8, Stride(x));
    for (const DType out_dtype : {DType::kBF16, DType::kF32}) {
      const Numbers expected = ExpectedProduct(x, w, {}, std::nullopt, out_dtype);
      for (const Place place : {Place{0, 40}, Place{1, 44}, Place{2, 41}, Place{4, 42}}) {
        SCOPED_TRACE(testing::Message() << DTypeName(out_dtype) << " n " << n << " at "
                                        << place.begin << " + " << place.stride);
        DeviceRows out(*device_, Unwritten(66, n, out_dtype), place.begin, place.stride);
        EXPECT_THAT(gemm_->Run(in.rows(), *matrix, {}, out.rows()), IsOk());
        ExpectSameBits(out.Read(), expected);
      }
    }
  }
}

TEST_F(GemmTest, LogitsAreTheSumsThemselves) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t n : {40, 37}) {
      const Numbers w = RandomNumbers(n, 72, dtype, 13);
      const Numbers x = RandomNumbers(66, 72, dtype, 14);
      const std::vector<float> bias = BiasOf(n);
      const Numbers expected = ExpectedProduct(x, w, bias, std::nullopt, DType::kF32);
      for (const int64_t m : {1, 33, 66}) {
        SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " n " << n << " m " << m);
        ExpectSameBits(Multiply(FirstRows(x, m), w, bias, std::nullopt, DType::kF32),
                       FirstRows(expected, m));
      }
    }
  }
}

TEST_F(GemmTest, BiasAndActivationAreRoundedEach) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
    const Numbers w = RandomNumbers(40, 72, dtype, 15);
    const Numbers x = RandomNumbers(66, 72, dtype, 16);
    for (const std::vector<float>& bias : {std::vector<float>{}, BiasOf(40)}) {
      for (const Activation activation :
           {Activation::kSilu, Activation::kRelu, Activation::kGeluTanh, Activation::kGelu}) {
        const Numbers expected = ExpectedProduct(x, w, bias, activation, dtype);
        for (const int64_t m : {1, 9, 17, 40, 66}) {
          SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " activation "
                                          << static_cast<int>(activation) << " m " << m);
          ExpectSameBits(Multiply(FirstRows(x, m), w, bias, activation), FirstRows(expected, m));
        }
      }
    }
  }
}

TEST_F(GemmTest, GatedProductsPairEveryGateWithItsUp) {
  struct Case {
    DType dtype;
    int64_t half, k;
  };
  // Whole groups, narrower last ones, and shapes that tensor cores do not take.
  for (const Case c :
       {Case{DType::kBF16, 64, 72}, Case{DType::kF16, 36, 40}, Case{DType::kBF16, 12, 24},
        Case{DType::kBF16, 100, 136}, Case{DType::kF32, 48, 40}, Case{DType::kF32, 35, 41},
        Case{DType::kBF16, 37, 40}, Case{DType::kF16, 5, 7}}) {
    const Numbers w = RandomNumbers(2 * c.half, c.k, c.dtype, 17);
    const Numbers x = RandomNumbers(66, c.k, c.dtype, 18);
    for (const std::vector<float>& bias : {std::vector<float>{}, BiasOf(2 * c.half)}) {
      const Numbers expected = ExpectedGated(x, w, bias);
      for (const int64_t m : {1, 9, 17, 40, 66}) {
        SCOPED_TRACE(testing::Message()
                     << DTypeName(c.dtype) << " half " << c.half << " k " << c.k << " m " << m);
        ExpectSameBits(MultiplyGated(FirstRows(x, m), w, bias), FirstRows(expected, m));
      }
    }
  }
}

TEST_F(GemmTest, ProductsWaitForTheOneBefore) {
  const std::optional<Activation> gelu = Activation::kGelu;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const Numbers first = RandomNumbers(72, 40, dtype, 20);
    const Numbers second = RandomNumbers(48, 72, dtype, 21);
    const std::unique_ptr<CudaMatrix> first_matrix = Pack(first);
    const std::unique_ptr<CudaMatrix> second_matrix = Pack(second, MatrixUse::kGated);
    for (const int64_t m : {1, 9, 17, 40, 66}) {
      SCOPED_TRACE(testing::Message() << DTypeName(dtype) << " m " << m);
      const Numbers x = RandomNumbers(m, 40, dtype, 22);
      const DeviceRows in(*device_, x, 0, 40);
      const DeviceRows between(*device_, Unwritten(m, 72, dtype), 0, 72);
      DeviceRows out(*device_, Unwritten(m, 24, dtype), 0, 24);
      const DeviceWatch watch;
      EXPECT_THAT(gemm_->Run(in.rows(), *first_matrix, {.activation = gelu}, between.rows()),
                  IsOk());
      EXPECT_THAT(gemm_->RunGated(between.rows(), *second_matrix, nullptr, out.rows()), IsOk());
      ExpectSameBits(out.Read(),
                     ExpectedGated(ExpectedProduct(x, first, {}, gelu, dtype), second, {}));
      watch.ExpectOverlap();
    }
  }
}

TEST_F(GemmTest, WithoutRowsNothingIsStarted) {
  const Numbers w = RandomNumbers(40, 72, DType::kBF16, 19);
  const std::unique_ptr<CudaMatrix> matrix = Pack(w);
  const DeviceWatch watch;
  const Rows x{nullptr, 0, 72, 72, DType::kBF16};
  const Rows out{nullptr, 0, 40, 40, DType::kBF16};
  EXPECT_THAT(gemm_->Run(x, *matrix, {}, out), IsOk());
  EXPECT_THAT(device_->Synchronize(), IsOk());
  watch.ExpectNoKernels();
}

}  // namespace
}  // namespace tlm
