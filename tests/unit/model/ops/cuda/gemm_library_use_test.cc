// How Gemm uses a library: what it believes of it, and that its products are finished as own ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "model/ops/cuda/device/cuda_status.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "model/ops/cuda/weights/weight_upload.h"
#include "tests/unit/model/ops/cuda/gemm_fixture.h"

namespace tlm {
namespace {

enum class Order {
  kOneChain,   // the own kernels'
  kTwoHalves,  // the sums of both halves of k, added: a split of k
};

// A library that computes with own kernels, or in another order.
class TestLibrary : public GemmLibrary {
 public:
  explicit TestLibrary(Order order) : order_(order) {}

  std::string version() const override { return "test"; }

  absl::StatusOr<int> Prepare(const LibraryGemm& gemm, const GemmProbe& probe) override {
    gemms.push_back(gemm);
    for (const int64_t m : {gemm.min_rows + 1, gemm.max_rows}) {
      const auto product = [&] {
        return Multiply(gemm, probe.x, probe.x_stride, m, probe.w, probe.out, probe.out_stride,
                        probe_stream);
      };
      TLM_ASSIGN_OR_RETURN(const bool agrees, probe.agrees(m, product));
      if (!agrees) return -1;
      if (use_probe != nullptr) use_probe(probe, m, product);
    }
    return static_cast<int>(gemms.size()) - 1;
  }

  absl::Status Run(int plan, const void* x, int64_t x_stride, int64_t m, const void* w, void* out,
                   int64_t out_stride, cudaStream_t stream) override {
    const LibraryGemm& gemm = gemms[plan];
    EXPECT_GT(m, gemm.min_rows);
    EXPECT_LE(m, gemm.max_rows);
    if (refuses) return absl::UnimplementedError("refused");
    ++runs;
    return Multiply(gemm, x, x_stride, m, w, out, out_stride, stream);
  }

  std::vector<LibraryGemm> gemms;
  int runs = 0;
  bool refuses = false;
  bool spoils = false;  // the last bit of the last output
  cudaStream_t probe_stream = nullptr;
  // Called where a product has agreed.
  std::function<void(const GemmProbe& probe, int64_t m, const GemmProbe::Product& product)>
      use_probe;

 private:
  absl::Status Multiply(const LibraryGemm& gemm, const void* x, int64_t x_stride, int64_t m,
                        const void* w, void* out, int64_t out_stride, cudaStream_t stream) {
    if (order_ == Order::kTwoHalves) {
      return MultiplyHalves(gemm, x, x_stride, m, w, out, out_stride, stream);
    }
    const GemmArgs args{.x = x,
                        .x_stride = x_stride,
                        .m = m,
                        .w = w,
                        .w_stride = gemm.w_stride,
                        .n = gemm.n,
                        .k = gemm.k,
                        .w_is_written = true,  // a library knows no better
                        .output = {.out = out,
                                   .out_stride = out_stride,
                                   .out_float32 = gemm.out_dtype == DType::kF32},
                        .row_tiles = static_cast<int32_t>((gemm.n + 127) / 128),
                        .token_tiles = static_cast<int32_t>((m + 127) / 128)};
    TLM_CUDA_RETURN_IF_ERROR(LaunchGemmMma(args, gemm.dtype, kTiledMmaTile, 2, stream));
    if (!spoils) return absl::OkStatus();
    const int64_t element = gemm.out_dtype == DType::kF32 ? 4 : 2;
    auto* const last = static_cast<char*>(out) + ((m - 1) * out_stride + gemm.n - 1) * element;
    char byte = 0;
    TLM_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
    TLM_CUDA_RETURN_IF_ERROR(cudaMemcpy(&byte, last, 1, cudaMemcpyDeviceToHost));
    byte = static_cast<char>(byte ^ 1);
    TLM_CUDA_RETURN_IF_ERROR(cudaMemcpy(last, &byte, 1, cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

  // On the host.
  static absl::Status MultiplyHalves(const LibraryGemm& gemm, const void* x, int64_t x_stride,
                                     int64_t m, const void* w, void* out, int64_t out_stride,
                                     cudaStream_t stream) {
    std::vector<uint16_t> host_x((m - 1) * x_stride + gemm.k);
    std::vector<uint16_t> host_w((gemm.n - 1) * gemm.w_stride + gemm.k);
    std::vector<uint16_t> host_out((m - 1) * out_stride + gemm.n);
    TLM_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream));
    TLM_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(host_x.data(), x, host_x.size() * 2, cudaMemcpyDeviceToHost));
    TLM_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(host_w.data(), w, host_w.size() * 2, cudaMemcpyDeviceToHost));
    const int half = static_cast<int>(gemm.k / 2);
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t j = 0; j < gemm.n; ++j) {
        const uint16_t* const a = host_w.data() + j * gemm.w_stride;
        const uint16_t* const b = host_x.data() + row * x_stride;
        const auto sum = [&](int begin) {
          return simt::MmaDot(MatrixUnitUnderTest(), simt::MmaInput::kBf16, a + begin, b + begin,
                              half, 0.0f);
        };
        host_out[row * out_stride + j] = FloatToBf16(sum(0) + sum(half));
      }
    }
    TLM_CUDA_RETURN_IF_ERROR(
        cudaMemcpy(out, host_out.data(), host_out.size() * 2, cudaMemcpyHostToDevice));
    return absl::OkStatus();
  }

  const Order order_;
};

class GemmLibraryUseTest : public GemmFixture {
 protected:
  void SetUp() override { OpenWith(&library_); }
  void OpenWith(TestLibrary* library) {
    Open(4, library);
    library->probe_stream = device_->compute_stream();
  }
  static constexpr BatchLimits kLimits{
      .max_tokens = 200, .max_sequences = 4, .max_logits_rows = 96, .max_context = 64};
  static constexpr int64_t kVocabulary = 56;

  TestLibrary library_{Order::kOneChain};

  void Note(int64_t n, int64_t k, DType dtype, MatrixUse use = MatrixUse::kPlain) {
    ASSERT_THAT(gemm_->Prepare(MatrixLayout(n, k, dtype, use)), IsOk());
  }
};

TEST_F(GemmLibraryUseTest, EveryKindOfProductIsProbedOnce) {
  for (int layer = 0; layer < 3; ++layer) {
    Note(40, 64, DType::kBF16);
    Note(80, 64, DType::kBF16, MatrixUse::kGated);
  }
  Note(kVocabulary, 64, DType::kBF16);
  Note(40, 64, DType::kF32);
  Note(41, 64, DType::kBF16);
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  EXPECT_EQ(gemm_->library_candidates(), 3);
  EXPECT_EQ(gemm_->library_products(), 3);
  ASSERT_EQ(library_.gemms.size(), 3u);
  EXPECT_EQ(library_.gemms[0].max_rows, 256);
  EXPECT_EQ(library_.gemms[0].out_dtype, DType::kBF16);
  EXPECT_EQ(library_.gemms[2].out_dtype, DType::kF32);
  EXPECT_EQ(library_.gemms[2].max_rows, 128);
}

TEST_F(GemmLibraryUseTest, ADifferentOrderOfSummationIsFoundOut) {
  TestLibrary library(Order::kTwoHalves);
  OpenWith(&library);
  Note(40, 64, DType::kBF16);
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  EXPECT_EQ(gemm_->library_candidates(), 1);
  EXPECT_EQ(gemm_->library_products(), 0);
  const Numbers w = RandomNumbers(40, 64, DType::kBF16, 1);
  const Numbers x = RandomNumbers(100, 64, DType::kBF16, 2);
  ExpectSameBits(Multiply(x, w), ExpectedProduct(x, w, {}, std::nullopt, DType::kBF16));
  EXPECT_EQ(library.runs, 0);
}

TEST_F(GemmLibraryUseTest, OneWrongBitIsFoundOut) {
  library_.spoils = true;
  Note(40, 64, DType::kBF16);
  Note(kVocabulary, 64, DType::kBF16);  // in float32
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  EXPECT_EQ(gemm_->library_candidates(), 2);
  EXPECT_EQ(gemm_->library_products(), 0);
}

TEST_F(GemmLibraryUseTest, ItsProductsAreFinishedAsOwnOnes) {
  const std::vector<float> bias = RandomNumbers(1, 72, DType::kF32, 3).values;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    Note(72, 64, dtype);
    Note(72, 64, dtype, MatrixUse::kGated);
    Note(kVocabulary, 64, dtype);
  }
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    const Numbers w = RandomNumbers(72, 64, dtype, 4);
    const Numbers x = RandomNumbers(150, 64, dtype, 5);
    ExpectSameBits(Multiply(x, w), ExpectedProduct(x, w, {}, std::nullopt, dtype));
    ExpectSameBits(Multiply(x, w, bias, Activation::kGelu),
                   ExpectedProduct(x, w, bias, Activation::kGelu, dtype));
    ExpectSameBits(MultiplyGated(x, w), ExpectedGated(x, w, {}));
    ExpectSameBits(MultiplyGated(x, w, bias), ExpectedGated(x, w, bias));
    const Numbers head = RandomNumbers(kVocabulary, 64, dtype, 6);
    ExpectSameBits(Multiply(x, head, {}, std::nullopt, DType::kF32),
                   ExpectedProduct(x, head, {}, std::nullopt, DType::kF32));
  }
  EXPECT_EQ(library_.runs, 12);  // rows of logits are more than were asked for: two chunks
}

TEST_F(GemmLibraryUseTest, FewRowsAreNeverItsOwn) {
  Note(40, 64, DType::kBF16);
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  const Numbers w = RandomNumbers(40, 64, DType::kBF16, 7);
  Multiply(RandomNumbers(16, 64, DType::kBF16, 8), w);
  EXPECT_EQ(library_.runs, 0);
  Multiply(RandomNumbers(17, 64, DType::kBF16, 8), w);
  EXPECT_EQ(library_.runs, 1);
}

TEST_F(GemmLibraryUseTest, ARightAnswerThatWasThereBeforeIsNotTaken) {
  Note(40, 64, DType::kBF16);
  int asked = 0;
  library_.use_probe = [&](const GemmProbe& probe, int64_t m, const GemmProbe::Product& product) {
    ++asked;
    const auto nothing = [] { return absl::OkStatus(); };
    EXPECT_EQ(probe.agrees(m, nothing).value(), false) << m;
    // What is timed writes its answer, too.
    EXPECT_THAT(probe.time(m, product), IsOk());
    EXPECT_THAT(probe.own_time(m), IsOk());
    EXPECT_EQ(probe.agrees(m, nothing).value(), false) << m;
    EXPECT_EQ(probe.agrees(m, product).value(), true) << m;
  };
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  EXPECT_EQ(asked, 2);
}

TEST_F(GemmLibraryUseTest, WhatCannotBeRunDoesNotAgree) {
  Note(40, 64, DType::kBF16);
  library_.use_probe = [](const GemmProbe& probe, int64_t m, const GemmProbe::Product&) {
    EXPECT_FALSE(probe.agrees(m, [] { return absl::UnimplementedError("refused"); }).value());
    EXPECT_THAT(probe.agrees(m, [] { return absl::InternalError("fault"); }),
                StatusIs(absl::StatusCode::kInternal, "fault"));
  };
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
}

// The probe's clock counts what a step would wait for.
TEST_F(GemmLibraryUseTest, AGatedProductIsTimedToItsEnd) {
  Note(80, 64, DType::kBF16, MatrixUse::kGated);
  Note(80, 64, DType::kBF16);
  std::vector<uint64_t> kernels;  // of one timed run beside the product itself
  library_.use_probe = [&](const GemmProbe& probe, int64_t m, const GemmProbe::Product&) {
    uint64_t runs = 0;
    const auto nothing = [&runs] {
      ++runs;
      return absl::OkStatus();
    };
    const DeviceWatch watch;
    EXPECT_THAT(probe.time(m, nothing), IsOk());
    EXPECT_GE(runs, 3u);
    EXPECT_EQ(watch.kernels() % runs, 0u);
    kernels.push_back(watch.kernels() / runs);
  };
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  if (RunsOnGpu()) return;
  EXPECT_THAT(kernels, ::testing::ElementsAre(1, 1, 0, 0));
}

TEST_F(GemmLibraryUseTest, TheWaysThatProductsWentAreNamedOnce) {
  Note(40, 64, DType::kBF16);
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  gemm_->TakeMethods();  // those of probing
  const Numbers w = RandomNumbers(40, 64, DType::kBF16, 7);
  Multiply(RandomNumbers(1, 64, DType::kBF16, 8), w);
  EXPECT_EQ(gemm_->TakeMethods(), "own skinny");
  EXPECT_EQ(gemm_->TakeMethods(), "");
  Multiply(RandomNumbers(200, 64, DType::kBF16, 8), w);
  EXPECT_EQ(gemm_->TakeMethods(), "library");
  Multiply(RandomNumbers(1, 64, DType::kBF16, 8), w);
  Multiply(RandomNumbers(200, 64, DType::kBF16, 8), w);
  EXPECT_EQ(gemm_->TakeMethods(), "own skinny + library");
  library_.refuses = true;
  Multiply(RandomNumbers(200, 64, DType::kBF16, 8), w);
  EXPECT_EQ(gemm_->TakeMethods(), "own skinny");
}

TEST_F(GemmLibraryUseTest, WhatItRefusesIsComputedAllTheSame) {
  Note(40, 64, DType::kBF16);
  Note(40, 64, DType::kBF16, MatrixUse::kGated);
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  library_.refuses = true;
  const Numbers w = RandomNumbers(40, 64, DType::kBF16, 9);
  const Numbers x = RandomNumbers(300, 64, DType::kBF16, 10);
  ExpectSameBits(Multiply(x, w), ExpectedProduct(x, w, {}, std::nullopt, DType::kBF16));
  ExpectSameBits(MultiplyGated(x, w), ExpectedGated(x, w, {}));
  EXPECT_EQ(library_.runs, 0);
}

TEST_F(GemmLibraryUseTest, ReserveKeepsWhatItSaid) {
  Note(40, 64, DType::kBF16);
  EXPECT_EQ(gemm_->ReserveBytes(kLimits), 0u);
  Note(80, 64, DType::kBF16, MatrixUse::kGated);
  Note(48, 64, DType::kBF16, MatrixUse::kGated);
  EXPECT_EQ(gemm_->ReserveBytes(kLimits), 256u * 80 * 2);
  EXPECT_EQ(gemm_->ReserveBytes(kLimits, 80, DType::kBF16), gemm_->ReserveBytes(kLimits));
  EXPECT_EQ(gemm_->ReserveBytes(kLimits, 80, DType::kF32), 0u);
  const auto allocated = [this] {
    size_t sum = 0;
    for (const size_t bytes : device_->AllocatedBytes()) sum += bytes;
    return sum;
  };
  const size_t before = allocated();
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  EXPECT_EQ(allocated() - before, gemm_->ReserveBytes(kLimits));
  gemm_->Release();
  EXPECT_EQ(allocated(), before);
  EXPECT_EQ(gemm_->library_products(), 0);
}

TEST_F(GemmLibraryUseTest, PanelsOfMatricesInBlocksAreProbed) {
  const int64_t k = 64;
  // Of 328 outputs panels of 256 and 72, of the head's and the gated one's two and one.
  const auto note = [&](int64_t n, MatrixUse use) {
    const BlockLayout blocks(n, k, DType::kI8G64);
    ASSERT_THAT(gemm_->Prepare(MatrixLayout(n, k, DType::kBF16, use), {&blocks, 1}), IsOk());
  };
  note(328, MatrixUse::kPlain);
  note(512, MatrixUse::kPlain);
  note(96, MatrixUse::kGated);
  const size_t panel = 256 * k * 2;
  ASSERT_THAT(gemm_->Reserve(kLimits, /*vocab_size=*/512, panel), IsOk());
  std::vector<std::pair<int64_t, DType>> kinds;
  for (const LibraryGemm& gemm : library_.gemms) kinds.push_back({gemm.n, gemm.out_dtype});
  EXPECT_THAT(kinds, ::testing::UnorderedElementsAre(std::pair(int64_t{256}, DType::kBF16),
                                                     std::pair(int64_t{72}, DType::kBF16),
                                                     std::pair(int64_t{256}, DType::kF32),
                                                     std::pair(int64_t{96}, DType::kBF16)));
  EXPECT_EQ(gemm_->library_products(), 4);

  const Numbers w = RandomNumbers(328, k, DType::kF32, 13);
  const TensorView view{DType::kF32, Shape{328, k}, w.values.data()};
  const BlockRows rows({&view, 1}, MatrixOrder::kOutputsFirst, DType::kI8G64);
  CudaMatrix::Segment segment{.layout = BlockLayout(328, k, DType::kI8G64)};
  segment.data = device_->Allocate(segment.layout.bytes(), MemoryPurpose::kWeights).value();
  WeightUpload upload(*device_, 1);
  ASSERT_THAT(
      upload.Blocks(rows, segment.layout, segment.data.data(), [](int64_t row) { return row; }),
      IsOk());
  ASSERT_THAT(upload.Finish(), IsOk());
  std::vector<CudaMatrix::Segment> segments;
  segments.push_back(std::move(segment));
  const CudaMatrix matrix(MatrixLayout(328, k, DType::kBF16, MatrixUse::kPlain),
                          std::move(segments));
  const auto multiply = [&](int64_t m) {
    const Numbers x = RandomNumbers(100, k, DType::kBF16, 14);
    const DeviceRows in(*device_, x, 8, Stride(x));
    const Numbers blank = Unwritten(m, 328, DType::kBF16);
    DeviceRows out(*device_, blank, 16, 328 + 24);
    EXPECT_THAT(gemm_->Run(in.rows().First(m), matrix, {}, out.rows()), IsOk());
    return out.Read();
  };
  library_.refuses = true;
  const Numbers few = multiply(64);
  library_.refuses = false;
  library_.runs = 0;
  Numbers many = multiply(100);
  EXPECT_EQ(library_.runs, 2);
  many.rows = 64;
  many.values.resize(few.values.size());
  ExpectSameBits(many, few);
  // Rows that the blocks' own kernel takes, and where a block has too little memory for that.
  const auto first = [&few](int64_t rows) {
    Numbers numbers{rows, few.cols, few.dtype, few.values};
    numbers.values.resize(rows * few.cols);
    return numbers;
  };
  CudaProperties small = device_->properties();
  small.shared_bytes_per_block = 99 << 10;
  for (const int64_t m : {8, 32}) ExpectSameBits(multiply(m), first(m));
  gemm_ = std::make_unique<Gemm>(*device_, small, nullptr);
  note(328, MatrixUse::kPlain);
  ASSERT_THAT(gemm_->Reserve(kLimits, /*vocab_size=*/512, panel), IsOk());
  for (const int64_t m : {8, 32}) ExpectSameBits(multiply(m), first(m));
}

TEST_F(GemmLibraryUseTest, WithoutMemoryToProbeItGoesWithout) {
  Note(40, 64, DType::kBF16);
  if (!FailDeviceAllocationAfter(2)) GTEST_SKIP() << "a GPU's allocations succeed";
  ASSERT_THAT(gemm_->Reserve(kLimits, kVocabulary), IsOk());
  EXPECT_EQ(gemm_->library_products(), 0);
  const Numbers w = RandomNumbers(40, 64, DType::kBF16, 11);
  const Numbers x = RandomNumbers(70, 64, DType::kBF16, 12);
  ExpectSameBits(Multiply(x, w), ExpectedProduct(x, w, {}, std::nullopt, DType::kBF16));
}

}  // namespace
}  // namespace tlm
