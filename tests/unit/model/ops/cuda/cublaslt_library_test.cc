// cuBLASLt as it is found at run time, and what is made of its algorithms: with a library of the
// test's own in its place.
#include "model/ops/cuda/gemm/cublaslt_library.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "model/ops/cuda/cuda_ops.h"
#include "model/ops/cuda/gemm/cublaslt_api.h"
#include "model/ops/cuda/gemm/gemm.h"
#include "model/ops/cuda/kernels/ceil_div.h"
#include "model/ops/cuda/kernels/gemm/gemm_kernels.h"
#include "model/ops/cuda/kernels/gemm/gemm_probe.h"
#include "model/ops/cuda/kernels/gemm/gemm_tiles.h"
#include "model/ops/cuda/weights/cuda_matrix.h"
#include "tests/support/simt/device_under_test.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/cuda/fake_cublaslt.h"
#include "tests/unit/model/ops/cuda/test_kernels.h"

namespace tlm {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr char kFake[] = TLM_FAKE_CUBLASLT;
constexpr char kLacking[] = TLM_FAKE_CUBLASLT_LACKING;
constexpr char kNowhere[] = "libtlm_nowhere.so.13";
constexpr int kNotInitialized = 1;
constexpr int kNotSupported = 15;

FakeCublasLt& FakeIn(const char* file) {
  void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return *reinterpret_cast<FakeCublasLtFunction*>(dlsym(library, kFakeCublasLtSymbol))();
}

class CublasLtLibraryTest : public ::testing::Test {
 protected:
  CublasLtLibraryTest() {
    ConfigureDevice({});
    device_ = CudaDevice::Create({}).value();
    fake_ = {};
    calls_.clear();
    statuses_.clear();
    fake_.matmul = [](const FakeMatmul& call) {
      calls_.push_back(call);
      return statuses_[call.algorithm];
    };
  }
  ~CublasLtLibraryTest() override { EXPECT_EQ(fake_.alive, left_alive_); }

  std::string WhyNot(const std::vector<std::string>& files) {
    const auto library = MakeCublasLtLibraryFrom(*device_, files);
    EXPECT_EQ(library.status().code(), absl::StatusCode::kUnavailable);
    return std::string(library.status().message());
  }
  std::unique_ptr<GemmLibrary> Open() {
    const std::vector<std::string> files = {kFake};
    return MakeCublasLtLibraryFrom(*device_, files).value();
  }

  static inline FakeCublasLt& fake_ = FakeIn(kFake);
  static inline std::vector<FakeMatmul> calls_;
  static inline std::map<uint64_t, int> statuses_;  // by algorithm; others succeed
  std::unique_ptr<CudaDevice> device_;
  int left_alive_ = 0;
};

TEST_F(CublasLtLibraryTest, OneThatIsNotThereIsNamed) {
  EXPECT_THAT(WhyNot({kNowhere, "libtlm_nowhere.so.12"}),
              AllOf(HasSubstr("libtlm_nowhere.so.13 cannot be opened"),
                    HasSubstr("libtlm_nowhere.so.12 cannot be opened")));
}

TEST_F(CublasLtLibraryTest, OtherMajorVersionsAreNotTaken) {
  fake_.version = 110403;
  EXPECT_THAT(WhyNot({kFake}),
              AllOf(HasSubstr(kFake), HasSubstr("is cuBLASLt 11.4.3, major "
                                                "versions 12 and 13 can be used")));
  fake_.version = 140000;
  EXPECT_THAT(WhyNot({kFake}), HasSubstr("is cuBLASLt 14.0.0"));
}

TEST_F(CublasLtLibraryTest, AMissingFunctionIsNamed) {
  EXPECT_THAT(WhyNot({kLacking}), AllOf(HasSubstr(kLacking), HasSubstr("has no cublasLtMatmul")));
}

TEST_F(CublasLtLibraryTest, OneThatDoesNotStartSaysWhy) {
  fake_.create_status = kNotInitialized;
  EXPECT_THAT(WhyNot({kFake}), HasSubstr("cuBLASLt 13.1.0 does not start: not initialized"));
}

TEST_F(CublasLtLibraryTest, TheFirstThatWorksIsTaken) {
  fake_.version = 120904;
  const std::vector<std::string> files = {kNowhere, kLacking, kFake};
  const auto library = MakeCublasLtLibraryFrom(*device_, files);
  ASSERT_THAT(library, IsOk());
  EXPECT_EQ((*library)->version(), "cuBLASLt 12.9.4");
}

TEST_F(CublasLtLibraryTest, WithoutItTheBackendSaysWhy) {
  const auto ops = CudaOps::Create({}, [](CudaDevice& device) {
    const std::vector<std::string> files = {kNowhere, kLacking};
    return MakeCublasLtLibraryFrom(device, files);
  });
  ASSERT_THAT(ops, IsOk());
  EXPECT_THAT((*ops)->Report(), AllOf(HasSubstr("own kernels for all products"),
                                      HasSubstr(kNowhere), HasSubstr("has no cublasLtMatmul")));
}

// With one algorithm that is the own kernels', and one that writes nothing.
TEST_F(CublasLtLibraryTest, ProductsHaveTheBitsOfOwnKernels) {
  constexpr int64_t kRows = 200;
  constexpr int64_t kOutputs = 40;
  constexpr int64_t kInputs = 64;
  fake_.algorithms = 2;
  fake_.matmul = [](const FakeMatmul& call) {
    calls_.push_back(call);
    if (call.algorithm == 0 || statuses_[1] != 0) return statuses_[call.algorithm];
    const auto m = static_cast<int64_t>(call.d.cols);
    const GemmArgs args{.x = call.b_data,
                        .x_stride = call.b.stride,
                        .m = m,
                        .w = call.a_data,
                        .w_stride = call.a.stride,
                        .n = kOutputs,
                        .k = kInputs,
                        .output = {.out = call.d_data, .out_stride = call.d.stride},
                        .row_tiles = 1,
                        .token_tiles = static_cast<int32_t>(CeilDiv(m, 128))};
    EXPECT_EQ(LaunchGemmMma(args, DType::kBF16, kTiledMmaTile, 1, call.stream), cudaSuccess);
    return cublaslt::kSuccess;
  };
  const std::unique_ptr<GemmLibrary> library = Open();
  CudaProperties properties = device_->properties();
  properties.l2_bytes = 4096;
  Gemm gemm(*device_, properties, library.get());
  Gemm own(*device_, properties, nullptr);
  const MatrixLayout layout(kOutputs, kInputs, DType::kBF16, MatrixUse::kPlain);
  ASSERT_THAT(gemm.Prepare(layout), IsOk());
  ASSERT_THAT(gemm.Reserve({.max_tokens = kRows, .max_sequences = 1}, 0), IsOk());
  EXPECT_THAT(calls_, Contains(Field(&FakeMatmul::algorithm, 0)));
  EXPECT_THAT(calls_, Contains(Field(&FakeMatmul::algorithm, 1)));

  const auto filled = [this](int64_t rows) {
    Buffer buffer =
        device_->Allocate(static_cast<size_t>(2 * rows * kInputs), MemoryPurpose::kRuntime).value();
    EXPECT_EQ(
        LaunchProbeFill({.data = buffer.data(), .rows = rows, .cols = kInputs, .stride = kInputs},
                        DType::kBF16, device_->compute_stream()),
        cudaSuccess);
    EXPECT_THAT(device_->Synchronize(), IsOk());
    return buffer;
  };
  const CudaMatrix w(layout, filled(kOutputs));
  const Buffer x = filled(kRows);
  const auto product = [&](Gemm& by, int64_t m) {
    std::vector<uint16_t> values(m * kOutputs);
    const Buffer out = device_->Allocate(2 * values.size(), MemoryPurpose::kRuntime).value();
    EXPECT_THAT(by.Run({x.data(), m, kInputs, kInputs, DType::kBF16}, w, {},
                       {out.data(), m, kOutputs, kOutputs, DType::kBF16}),
                IsOk());
    EXPECT_THAT(device_->CopyToHost(values.data(), out.data(), out.bytes()), IsOk());
    return values;
  };
  calls_.clear();
  for (const int64_t m : {1, 17, 32, 100, 200}) EXPECT_EQ(product(gemm, m), product(own, m)) << m;
  EXPECT_THAT(calls_, Each(Field(&FakeMatmul::algorithm, 1)));
  // And where it begins to fail: at most once for each bucket, as the emulated GPU's clock decides
  // which are its own.
  statuses_[1] = cublaslt::kInternalError;
  calls_.clear();
  for (const int64_t m : {100, 100, 200}) EXPECT_EQ(product(gemm, m), product(own, m)) << m;
  EXPECT_LE(calls_.size(), 2u);
  EXPECT_EQ(device_->run_counts().library_failures, static_cast<int64_t>(calls_.size()));
}

// Milliseconds of an algorithm, or a negative number where its bits differ, for few and many rows.
struct Merit {
  float few = 1.0f;
  float many = 1.0f;
};

class CublasLtChoiceTest : public CublasLtLibraryTest {
 protected:
  CublasLtChoiceTest() : library_(Open()) {}

  // By the algorithm that the last call was made with.
  GemmProbe Probe() {
    const auto merit = [this](int64_t m) {
      const Merit& of = merits_[calls_.back().algorithm];
      return m <= kFew ? of.few : of.many;
    };
    return {
        .x = x_,
        .x_stride = 64,
        .w = w_,
        .out = out_,
        .out_stride = 40,
        .agrees = [merit](int64_t m, const GemmProbe::Product& product) -> absl::StatusOr<bool> {
          const absl::Status status = product();
          if (absl::IsUnimplemented(status)) return false;
          if (!status.ok()) return status;
          return merit(m) >= 0.0f;
        },
        .time = [merit](int64_t m, const GemmProbe::Product& product) -> absl::StatusOr<float> {
          const absl::Status status = product();
          if (!status.ok()) return status;
          return merit(m);
        },
        .own_time = [](int64_t) -> absl::StatusOr<float> { return 2.0f; }};
  }
  // The algorithm that computes m rows; -1: the own kernels do.
  int ComputedBy(int plan, int64_t m) {
    calls_.clear();
    const absl::Status status = library_->Run(plan, x_, 72, m, w_, out_, 48, stream_);
    if (absl::IsUnimplemented(status)) return -1;
    EXPECT_THAT(status, IsOk());
    EXPECT_EQ(calls_.size(), 1u);
    return static_cast<int>(calls_.back().algorithm);
  }
  // The library's products fail from here on, and the device with them. Returns what they use.
  Buffer FailTheDevice() {
    Buffer memory = device_->Allocate(256, MemoryPurpose::kRuntime).value();
    static int32_t* in = nullptr;
    in = memory.as<int32_t>();
    fake_.matmul = [](const FakeMatmul& call) {
      EXPECT_EQ(LaunchMisaligned({.in = in, .out = in}, call.stream), cudaSuccess);
      return static_cast<int>(cublaslt::kInternalError);
    };
    return memory;
  }

  static constexpr int64_t kFew = 32;
  static constexpr LibraryGemm kGemm{.n = 40,
                                     .k = 64,
                                     .w_stride = 64,
                                     .dtype = DType::kBF16,
                                     .out_dtype = DType::kF32,
                                     .min_rows = 16,
                                     .max_rows = 128};
  // Never followed.
  int memory_[3];
  void* const x_ = &memory_[0];
  void* const w_ = &memory_[1];
  void* const out_ = &memory_[2];
  cudaStream_t stream_ = device_->compute_stream();
  std::map<uint64_t, Merit> merits_;
  const std::unique_ptr<GemmLibrary> library_;
};

TEST_F(CublasLtChoiceTest, EveryBucketHasTheFastestThatAgrees) {
  fake_.algorithms = 4;
  merits_[0] = {.few = -1.0f, .many = 0.1f};
  merits_[1] = {.few = 1.5f, .many = 1.5f};
  merits_[2] = {.few = 1.0f, .many = 1.2f};
  merits_[3] = {.few = 3.0f, .many = -1.0f};
  const absl::StatusOr<int> plan = library_->Prepare(kGemm, Probe());
  ASSERT_THAT(plan, IsOk());
  for (const int64_t m : {17, 32}) EXPECT_EQ(ComputedBy(*plan, m), 2) << m;
  for (const int64_t m : {33, 64, 65, 128}) EXPECT_EQ(ComputedBy(*plan, m), 0) << m;
  // Asked again it knows.
  calls_.clear();
  EXPECT_EQ(library_->Prepare(kGemm, Probe()).value(), *plan);
  EXPECT_TRUE(calls_.empty());
}

TEST_F(CublasLtChoiceTest, OwnKernelsStayWhereTheyAreFasterOrAlone) {
  fake_.algorithms = 1;
  merits_[0] = {.few = 2.5f, .many = 1.0f};
  const int plan = library_->Prepare(kGemm, Probe()).value();
  EXPECT_EQ(ComputedBy(plan, 20), -1);
  EXPECT_EQ(ComputedBy(plan, 100), 0);
  LibraryGemm other = kGemm;
  other.max_rows = kFew;
  EXPECT_EQ(library_->Prepare(other, Probe()).value(), -1);
  merits_[0] = {.few = -1.0f, .many = -1.0f};
  other.max_rows = 256;
  EXPECT_EQ(library_->Prepare(other, Probe()).value(), -1);
}

TEST_F(CublasLtChoiceTest, OneThatFailsToRunIsPassedOver) {
  fake_.algorithms = 4;
  statuses_ = {{0, cublaslt::kExecutionFailed}, {1, cublaslt::kInternalError}, {2, kNotSupported}};
  const absl::StatusOr<int> plan = library_->Prepare(kGemm, Probe());
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(ComputedBy(*plan, 100), 3);
  EXPECT_THAT(device_->fault(), IsOk());
}

TEST_F(CublasLtChoiceTest, OneThatTheDeviceFailsUnderIsAFault) {
  const auto failures = RecordDeviceFailures();
  if (failures == nullptr) GTEST_SKIP() << "it would end the GPU";
  fake_.algorithms = 2;
  const Buffer memory = FailTheDevice();
  EXPECT_EQ(library_->Prepare(kGemm, Probe()).status().code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(device_->fault().ok());
  left_alive_ = 1;  // the handle: the library is not asked to free what is on a failed device
}

TEST_F(CublasLtChoiceTest, RowsAreItsColumns) {
  fake_.algorithms = 1;
  const int plan = library_->Prepare(kGemm, Probe()).value();
  ASSERT_EQ(ComputedBy(plan, 100), 0);
  const FakeMatmul& call = calls_.back();
  EXPECT_EQ(call.transposed, 1);
  EXPECT_EQ(call.a_data, w_);
  EXPECT_EQ(call.b_data, x_);
  EXPECT_EQ(call.d_data, out_);
  EXPECT_EQ(call.stream, stream_);
  EXPECT_EQ(call.a, (FakeMatrix{cublaslt::kBfloat16, 64, 40, 64}));
  EXPECT_EQ(call.b, (FakeMatrix{cublaslt::kBfloat16, 64, 100, 72}));
  EXPECT_EQ(call.c, (FakeMatrix{cublaslt::kFloat32, 40, 100, 48}));
  EXPECT_EQ(call.d, call.c);
}

TEST_F(CublasLtChoiceTest, WhatItRefusesLaterIsLeftToOthers) {
  fake_.algorithms = 1;
  const int plan = library_->Prepare(kGemm, Probe()).value();
  statuses_[0] = kNotSupported;
  EXPECT_THAT(library_->Run(plan, x_, 64, 100, w_, out_, 40, stream_),
              IsUnimplemented("refuses 100 rows"));
}

TEST_F(CublasLtChoiceTest, WhatFailsLaterIsTheOwnKernelsFromThenOn) {
  fake_.algorithms = 1;
  const int plan = library_->Prepare(kGemm, Probe()).value();
  for (const int status : {cublaslt::kExecutionFailed, cublaslt::kInternalError}) {
    const int64_t m = status == cublaslt::kExecutionFailed ? 100 : 20;
    statuses_[0] = status;
    EXPECT_THAT(library_->Run(plan, x_, 64, m, w_, out_, 40, stream_),
                IsUnimplemented(std::to_string(m) + " rows of a product [40, 64]"));
    statuses_[0] = cublaslt::kSuccess;
    EXPECT_EQ(ComputedBy(plan, m), -1);
    EXPECT_TRUE(calls_.empty());
    EXPECT_EQ(ComputedBy(plan, 50), 0);  // of a bucket that has not failed
  }
  EXPECT_EQ(device_->run_counts().library_failures, 2);
  EXPECT_THAT(library_->last_failure(), HasSubstr("20 rows"));
  EXPECT_THAT(device_->fault(), IsOk());
}

TEST_F(CublasLtChoiceTest, WhatFailsWhileItIsRecordedIsRunDirectly) {
  fake_.algorithms = 1;
  const int plan = library_->Prepare(kGemm, Probe()).value();
  const Buffer memory = device_->Allocate(256, MemoryPurpose::kRuntime).value();
  int own = 0;
  const auto step = [&]() -> absl::Status {
    const absl::Status status = library_->Run(plan, x_, 64, 100, w_, out_, 40, stream_);
    if (!absl::IsUnimplemented(status)) return status;
    ++own;
    return device_->Check(cudaMemsetAsync(memory.data(), 0, 256, stream_), "cudaMemsetAsync");
  };
  calls_.clear();
  statuses_[0] = cublaslt::kExecutionFailed;
  EXPECT_THAT(device_->RunCaptured(1, step), IsOk());
  EXPECT_EQ(device_->run_counts().direct, 1);
  EXPECT_THAT(device_->graph_failures().last, HasSubstr("cuBLASLt: Matmul"));
  EXPECT_EQ(own, 1);
  // The next recording is of the own kernels.
  EXPECT_THAT(device_->RunCaptured(1, step), IsOk());
  EXPECT_EQ(device_->run_counts().recorded, 1);
  EXPECT_EQ(own, 2);
  EXPECT_EQ(calls_.size(), 1u);
  EXPECT_THAT(device_->Synchronize(), IsOk());
}

TEST_F(CublasLtChoiceTest, WhatTheDeviceFailsUnderLaterIsAFault) {
  const auto failures = RecordDeviceFailures();
  if (failures == nullptr) GTEST_SKIP() << "it would end the GPU";
  fake_.algorithms = 1;
  const int plan = library_->Prepare(kGemm, Probe()).value();
  const Buffer memory = FailTheDevice();
  EXPECT_EQ(library_->Run(plan, x_, 64, 100, w_, out_, 40, stream_).code(),
            absl::StatusCode::kInternal);
  EXPECT_FALSE(device_->fault().ok());
  left_alive_ = 1;  // as above
}

}  // namespace
}  // namespace tlm
