#include "tests/benchmarks/engine/op_inputs.h"

#include <cstddef>
#include <random>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/tensor/tensor_view.h"

namespace tlm::bench {
namespace {

// A few random values, repeated at shifting places: generating hundreds of millions would take
// longer than what is measured.
template <typename T, typename Convert>
std::vector<T> RandomValues(size_t count, Convert convert) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<T> distinct(4096 + 1);
  for (T& value : distinct) value = convert(normal(random));
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = distinct[(i * 7 + i / 4096) % distinct.size()];
  return values;
}

std::vector<float> RandomFloats(size_t count) {
  return RandomValues<float>(count, [](float value) { return value; });
}

std::vector<uint16_t> RandomHalves(size_t count, DType dtype) {
  return RandomValues<uint16_t>(count, dtype == DType::kBF16 ? FloatToBf16 : FloatToF16);
}

// 2^-15 to 2^-8 as scales, 128 to 240 as elements.
std::vector<uint8_t> RandomBytes(size_t count) {
  return RandomValues<uint8_t>(
      count, [](float value) { return static_cast<uint8_t>(0x70 + (FloatToBf16(value) & 7)); });
}

}  // namespace

Rows OwnedRows::Part(int64_t count, int64_t cols) const {
  Rows part = rows.First(count).Columns(0, cols);
  part.stride = ops->RowStride(cols, rows.dtype);
  return part;
}

absl::StatusOr<Buffer> MakeValues(Ops& ops, int64_t count, DType dtype) {
  const auto values = static_cast<size_t>(count);
  const size_t bytes = values * DTypeBytes(dtype);
  TLM_ASSIGN_OR_RETURN(Buffer memory, ops.device().Allocate(bytes, MemoryPurpose::kActivations));
  if (dtype == DType::kF32) {
    TLM_RETURN_IF_ERROR(
        ops.device().CopyToDevice(memory.data(), RandomFloats(values).data(), bytes));
  } else if (dtype == DType::kF8E4M3) {
    TLM_RETURN_IF_ERROR(
        ops.device().CopyToDevice(memory.data(), RandomBytes(values).data(), bytes));
  } else {
    TLM_RETURN_IF_ERROR(
        ops.device().CopyToDevice(memory.data(), RandomHalves(values, dtype).data(), bytes));
  }
  return memory;
}

absl::StatusOr<OwnedRows> MakeRows(Ops& ops, int64_t rows, int64_t cols, DType dtype) {
  const int64_t stride = ops.RowStride(cols, dtype);
  TLM_ASSIGN_OR_RETURN(Buffer memory, MakeValues(ops, rows * stride, dtype));
  const Rows made{memory.data(), rows, cols, stride, dtype};
  return OwnedRows{.ops = &ops, .memory = std::move(memory), .rows = made};
}

absl::StatusOr<std::unique_ptr<Matrix>> MakeMatrix(Ops& ops, int64_t n, int64_t k, DType dtype,
                                                   MatrixUse use, WeightFormat format) {
  const auto count = static_cast<size_t>(n * k);
  if (dtype == DType::kF32) {
    const std::vector<float> values = RandomFloats(count);
    const TensorView view{dtype, Shape({n, k}), values.data()};
    return ops.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use, format);
  }
  const std::vector<uint16_t> values = RandomHalves(count, dtype);
  const TensorView view{dtype, Shape({n, k}), values.data()};
  return ops.PackMatrix({&view, 1}, MatrixOrder::kOutputsFirst, use, format);
}

}  // namespace tlm::bench
