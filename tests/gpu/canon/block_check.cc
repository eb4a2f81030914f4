#include "tests/gpu/canon/block_check.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/tensor/blocks.h"
#include "tests/support/block_model.h"

namespace tlm {
namespace {

// Random blocks and values repeat after so many: generating all of them would take longer than the
// products.
constexpr size_t kDistinct = 4099;

template <typename T>
std::vector<T> Repeated(const std::vector<T>& distinct, size_t count) {
  std::vector<T> all(count);
  for (size_t at = 0; at < count; at += distinct.size()) {
    std::memcpy(&all[at], distinct.data(), std::min(distinct.size(), count - at) * sizeof(T));
  }
  return all;
}

std::vector<uint16_t> RandomRows(size_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<uint16_t> distinct(kDistinct);
  for (uint16_t& value : distinct) value = FloatToBf16(normal(random));
  return Repeated(distinct, count);
}

}  // namespace

absl::StatusOr<BlockCheck> CompareProducts(CudaOps& ops, const Matrix& w, const Matrix& other,
                                           bool gated, std::span<const int64_t> row_counts) {
  CudaDevice& device = ops.device();
  const int64_t most = row_counts.back();
  const int64_t outputs = gated ? w.n() / 2 : w.n();
  const int64_t x_stride = ops.RowStride(w.k(), DType::kBF16);
  const int64_t out_stride = ops.RowStride(outputs, DType::kBF16);
  const std::vector<uint16_t> values = RandomRows(static_cast<size_t>(most * x_stride));
  TLM_ASSIGN_OR_RETURN(const Buffer x, device.Allocate(values.size() * 2, MemoryPurpose::kRuntime));
  TLM_RETURN_IF_ERROR(device.CopyToDevice(x.data(), values.data(), x.bytes()));
  const size_t row_bytes = static_cast<size_t>(out_stride) * 2;
  const size_t out_bytes = static_cast<size_t>(most) * row_bytes;
  TLM_ASSIGN_OR_RETURN(const Buffer out, device.Allocate(out_bytes, MemoryPurpose::kRuntime));
  std::vector<uint16_t> found(out_bytes / 2), expected(out_bytes / 2);
  const auto multiply = [&](const Matrix& matrix, int64_t m, int poison,
                            std::vector<uint16_t>& results) -> absl::Status {
    TLM_RETURN_IF_ERROR(device.MakeCurrent());
    TLM_RETURN_IF_ERROR(device.Check(
        cudaMemsetAsync(out.data(), poison, out.bytes(), device.compute_stream()), "memset"));
    const Rows in{x.data(), m, w.k(), x_stride, DType::kBF16};
    const Rows rows{out.data(), m, outputs, out_stride, DType::kBF16};
    TLM_RETURN_IF_ERROR(gated ? ops.MatMulGated(in, matrix, nullptr, rows)
                              : ops.MatMul(in, matrix, {}, rows));
    return device.CopyToHost(results.data(), out.data(), static_cast<size_t>(m) * row_bytes);
  };
  BlockCheck check;
  for (const int64_t m : row_counts) {
    TLM_RETURN_IF_ERROR(multiply(w, m, 0xff, found));
    TLM_RETURN_IF_ERROR(multiply(other, m, 0, expected));
    int64_t differences = 0;
    for (int64_t row = 0; row < m; ++row) {
      const uint16_t* const a = &found[row * out_stride];
      const uint16_t* const b = &expected[row * out_stride];
      if (std::memcmp(a, b, static_cast<size_t>(outputs) * 2) == 0) continue;
      for (int64_t j = 0; j < outputs; ++j) {
        if (a[j] == b[j]) continue;
        if (differences++ == 0 && check.first.empty()) {
          check.first = fmt::format("{} rows, row {}, output {}: {:04x}, of values {:04x}", m, row,
                                    j, a[j], b[j]);
        }
      }
    }
    ++check.runs;
    check.different_runs += differences > 0 ? 1 : 0;
    check.different_elements += differences;
  }
  return check;
}

absl::StatusOr<BlockCheck> CheckBlocks(CudaOps& ops, const BlockShape& shape,
                                       std::span<const int64_t> row_counts) {
  TLM_CHECK(!row_counts.empty());
  const DTypeBlock block = BlockOf(shape.type);
  const auto elements = static_cast<size_t>(shape.n * shape.k);
  std::mt19937_64 random(3);
  const std::vector<std::byte> distinct = RandomBlocks(shape.type, kDistinct, 0.02f, random);
  std::vector<float> meant(kDistinct * block.elements);
  Dequantise(shape.type, distinct.data(), kDistinct, meant.data());
  std::vector<uint16_t> rounded;
  for (const float value : meant) rounded.push_back(FloatToBf16(value));
  const MatrixUse use = shape.gated ? MatrixUse::kGated : MatrixUse::kPlain;
  const auto pack = [&](DType dtype, const void* data) {
    const TensorView view{dtype, Shape{shape.n, shape.k}, data};
    return ops.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use);
  };
  const auto blocks = Repeated(distinct, elements / block.elements * block.bytes);
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Matrix> w, pack(shape.type, blocks.data()));
  const auto values = Repeated(rounded, elements);
  TLM_ASSIGN_OR_RETURN(const std::unique_ptr<Matrix> other, pack(DType::kBF16, values.data()));
  TLM_RETURN_IF_ERROR(ops.Reserve({.max_tokens = row_counts.back(),
                                   .max_sequences = 1,
                                   .max_logits_rows = 1,
                                   .max_context = kBlockTokens},
                                  {.vocab_size = 64,
                                   .num_heads = 2,
                                   .num_kv_heads = 1,
                                   .head_dim = 64,
                                   .gated_outputs = shape.gated ? shape.n : 0,
                                   .inputs = shape.k,
                                   .matrix_elements = shape.n * shape.k,
                                   .has_blocks = true},
                                  DType::kBF16));
  absl::StatusOr<BlockCheck> check = CompareProducts(ops, *w, *other, shape.gated, row_counts);
  ops.Release();
  return check;
}

}  // namespace tlm
