#include "model/ops/cpu/arithmetic_probe.h"

#include <fmt/format.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cpu/matmul.h"
#include "model/ops/cpu/packed_matrix.h"
#include "model/ops/cpu/thread_pool.h"

namespace tlm {
namespace {

constexpr int64_t kRows = 4;
constexpr int64_t kInputs = 96;
constexpr int64_t kOutputs = kPanel;

// Generates bfloat16 values with any sign and fraction and an exponent of [lowest, lowest + span).
class Values {
 public:
  uint16_t Next(uint32_t lowest, uint32_t span) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state_ >> 40);
    const uint32_t exponent = lowest + (bits >> 8) % span;
    return static_cast<uint16_t>((bits & 0x80u) << 8 | exponent << 7 | (bits & 0x7fu));
  }

 private:
  uint64_t state_ = 1;
};

// Returns the FNV-1a hash (Fowler, Noll and Vo) of the bits of the values.
uint64_t HashOf(const std::vector<float>& values) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const float value : values) {
    const auto bits = std::bit_cast<uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (bits >> shift & 0xffu)) * 0x100000001b3u;
    }
  }
  return hash;
}

}  // namespace

absl::StatusOr<std::string> ArithmeticProbe(const Kernels& kernels, Device& device) {
  Values random;
  std::vector<uint16_t> weights(static_cast<size_t>(kOutputs * kInputs));
  for (uint16_t& weight : weights) weight = random.Next(115, 24);
  std::vector<uint16_t> inputs;
  for (int64_t row = 0; row < kRows; ++row) {
    // The last row's products are close to the least normal number.
    const bool tiny = row + 1 == kRows;
    for (int64_t i = 0; i < kInputs; ++i) {
      inputs.push_back(tiny ? random.Next(1, 12) : random.Next(115, 24));
    }
  }
  ThreadPool pool(1);
  const TensorView view{DType::kBF16, Shape{kOutputs, kInputs}, weights.data()};
  TLM_ASSIGN_OR_RETURN(
      const std::unique_ptr<PackedMatrix> packed,
      PackedMatrix::Pack({&view, 1}, MatrixOrder::kOutputsFirst, MatrixUse::kPlain, device, pool));
  CpuMatMul products(kernels, device, pool);
  TLM_RETURN_IF_ERROR(products.Reserve(kInputs));
  std::vector<float> out(static_cast<size_t>(kRows * kOutputs));
  products.MatMul({inputs.data(), kRows, kInputs, kInputs, DType::kBF16}, *packed, {},
                  {out.data(), kRows, kOutputs, kOutputs});
  return fmt::format("{:016x}", HashOf(out));
}

}  // namespace tlm
