// The op tests on the kernels of amx_bf16, with emulated AMX tiles (tests/support/amx).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "model/base/float16.h"
#include "model/ops/cpu/cpu_ops.h"
#include "tests/support/amx/emulated_kernels.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

absl::StatusOr<std::unique_ptr<Ops>> Make(bool vectors_agree) {
  const std::vector<Isa> isas = AvailableIsas();
  if (std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16) == isas.end()) {
    return absl::UnavailableError("this machine cannot run avx512_bf16");
  }
  return CpuOps::CreateWith(2, Isa::kAmxBf16, EmulatedAmxKernels(vectors_agree));
}

// So many bytes that the caches take them in parts, of which the last is shorter.
TEST(AmxEmulatedTest, RowsInPartsHaveTheBitsOfRowsApart) {
  constexpr int64_t kRows = 150, kApart = 50, kInputs = 10300, kOutputs = 16;
  absl::StatusOr<std::unique_ptr<Ops>> made = Make(true);
  if (!made.ok()) GTEST_SKIP() << made.status().message();
  Ops& ops = **made;
  ASSERT_THAT(ops.Reserve({.max_tokens = kRows}, {.head_dim = 16, .inputs = kInputs}, DType::kBF16),
              IsOk());
  const HostMatrix w(kOutputs, kInputs, DType::kBF16, 1);
  const TensorView view = w.view();
  const auto packed = ops.PackMatrix({&view, 1});
  ASSERT_THAT(packed, IsOk());
  const int64_t stride = ops.RowStride(kInputs, DType::kBF16);
  std::vector<uint16_t> x;
  for (const float value : RandomFloats(kRows * stride, 2)) x.push_back(FloatToBf16(value));
  const Rows rows{x.data(), kRows, kInputs, stride, DType::kBF16};
  std::vector<float> together(kRows * kOutputs, -77.0f);
  std::vector<float> apart = together;
  ASSERT_THAT(ops.MatMul(rows, **packed, {}, {together.data(), kRows, kOutputs, kOutputs}), IsOk());
  for (int64_t row = 0; row < kRows; row += kApart) {
    Rows part = rows.First(kApart);
    part.data = x.data() + row * stride;
    ASSERT_THAT(
        ops.MatMul(part, **packed, {}, {apart.data() + row * kOutputs, kApart, kOutputs, kOutputs}),
        IsOk());
  }
  EXPECT_EQ(together, apart);
}

// Products of integer weights, cut into tasks as on other instruction sets.
TEST(AmxEmulatedTest, IntegerWeightsGiveTheBitsOfVectors) {
  constexpr int64_t kRows = 300, kInputs = 1100, kOutputs = 150;
  absl::StatusOr<std::unique_ptr<Ops>> tiles = Make(true);
  if (!tiles.ok()) GTEST_SKIP() << tiles.status().message();
  auto vectors = CpuOps::Create(2, Isa::kAvx512Bf16);
  ASSERT_THAT(vectors, IsOk());
  const HostMatrix w(kOutputs, kInputs, DType::kF32, 3);
  const TensorView view = w.view();
  std::vector<float> x = RandomFloats(kRows * kInputs, 4);
  for (const WeightFormat format :
       {WeightFormat::kInt8, WeightFormat::kInt4G32, WeightFormat::kInt4G128}) {
    const auto multiply = [&](Ops& ops, int64_t rows) {
      EXPECT_THAT(
          ops.Reserve({.max_tokens = kRows}, {.inputs = kInputs, .has_blocks = true}, DType::kF32),
          IsOk());
      const auto packed =
          ops.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, MatrixUse::kPlain, format);
      EXPECT_THAT(packed, IsOk());
      std::vector<float> out(rows * kOutputs);
      EXPECT_THAT(ops.MatMul({x.data(), rows, kInputs, kInputs}, **packed, {},
                             {out.data(), rows, kOutputs, kOutputs}),
                  IsOk());
      return out;
    };
    for (const int64_t rows : {4, 5, 300}) {
      EXPECT_EQ(multiply(**tiles, rows), multiply(**vectors, rows)) << rows;
    }
  }
}

}  // namespace

std::vector<OpsCase> OpsCases() {
  std::vector<OpsCase> cases;
  for (const bool vectors_agree : {false, true}) {
    cases.push_back({.name = vectors_agree ? "amx_emulated_vectors" : "amx_emulated_tiles",
                     .weights = DType::kBF16,
                     .emulated = true,
                     .make = [vectors_agree] { return Make(vectors_agree); }});
  }
  return cases;
}

}  // namespace tlm
