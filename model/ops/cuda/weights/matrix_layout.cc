#include "model/ops/cuda/weights/matrix_layout.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr int64_t kRowAlignment = 16;  // bytes

int64_t PaddedRow(int64_t k, DType dtype) {
  const int64_t step = kRowAlignment / static_cast<int64_t>(DTypeBytes(dtype));
  return (k + step - 1) / step * step;
}

size_t SaturatedProduct(size_t a, size_t b) {
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  return b != 0 && a > kMax / b ? kMax : a * b;
}

}  // namespace

MatrixLayout::MatrixLayout(int64_t n, int64_t k, DType dtype, MatrixUse use)
    : n_(n), k_(k), dtype_(dtype), use_(use), row_stride_(PaddedRow(k, dtype)) {
  TLM_CHECK(dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32);
  TLM_CHECK(n >= 0 && k >= 0 && (!gated() || n % 2 == 0));
  bytes_ = SaturatedProduct(static_cast<size_t>(n),
                            SaturatedProduct(static_cast<size_t>(row_stride_), DTypeBytes(dtype)));
}

int64_t MatrixLayout::OutputOfRow(int64_t row) const {
  if (!gated()) return row;
  const int64_t half = n_ / 2;
  const int64_t first = row / (2 * kGateGroupRows) * kGateGroupRows;
  const int64_t width = std::min(kGateGroupRows, half - first);
  const int64_t within = row % (2 * kGateGroupRows);
  return within < width ? first + within : half + first + within - width;
}

int64_t MatrixLayout::RowOfOutput(int64_t output) const {
  if (!gated()) return output;
  const int64_t half = n_ / 2;
  const int64_t index = output % half;
  const int64_t first = index / kGateGroupRows * kGateGroupRows;
  const int64_t width = std::min(kGateGroupRows, half - first);
  return 2 * first + (output < half ? 0 : width) + index - first;
}

}  // namespace tlm
