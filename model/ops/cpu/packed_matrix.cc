#include "model/ops/cpu/packed_matrix.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cpu/matrix_parts.h"
#include "model/ops/cpu/panel_packer.h"
#include "model/tensor/float_elements.h"

namespace tlm {
namespace {

// Returns the stored type of all parts: one 16-bit type if all agree on it, else F32.
DType StoredType(std::span<const TensorView> parts) {
  const DType first = parts.front().dtype;
  const bool alike = std::all_of(parts.begin(), parts.end(),
                                 [first](const TensorView& part) { return part.dtype == first; });
  return alike && (first == DType::kBF16 || first == DType::kF16) ? first : DType::kF32;
}

int64_t PanelElements(DType dtype, int64_t k) {
  if (dtype != DType::kBF16) return k * kPanel;
  return (k + kBf16InputStep - 1) / kBf16InputStep * kBf16InputStep * kPanel;
}

}  // namespace

Storage StorageOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return Storage::kBF16;
    case DType::kF16:
      return Storage::kF16;
    case DType::kF8E4M3:
      return Storage::kF8;
    default:
      TLM_CHECK(dtype == DType::kF32);
      return Storage::kF32;
  }
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> PackedMatrix::Pack(std::span<const TensorView> parts,
                                                                 MatrixOrder order, MatrixUse use,
                                                                 Device& device, ThreadPool& pool) {
  const MatrixParts outputs(parts, order, use);
  const DType dtype = StoredType(parts);
  const size_t panel_bytes =
      static_cast<size_t>(PanelElements(dtype, outputs.k())) * DTypeBytes(dtype);
  // Fresh memory is zero, and so is the padding.
  TLM_ASSIGN_OR_RETURN(Buffer data,
                       device.Allocate(static_cast<size_t>(outputs.panels()) * panel_bytes,
                                       MemoryPurpose::kWeights));
  // With inputs first, the weights of neighbouring panels share lines and pages.
  const int64_t task_panels = order == MatrixOrder::kInputsFirst ? 8 : 1;
  std::atomic<bool> finite{true};
  pool.ParallelFor((outputs.panels() + task_panels - 1) / task_panels, [&](int64_t task) {
    const int64_t begin = task * task_panels;
    const int64_t end = std::min(outputs.panels(), begin + task_panels);
    if (!PackPanels(outputs, begin, end, dtype,
                    data.as<std::byte>() + static_cast<size_t>(begin) * panel_bytes, panel_bytes)) {
      finite.store(false, std::memory_order_relaxed);
    }
  });
  if (!finite) {
    return InvalidArgument("a weight of a matrix [{}, {}] is not finite as {}", outputs.n(),
                           outputs.k(), DTypeName(dtype));
  }
  return std::unique_ptr<PackedMatrix>(
      new PackedMatrix(outputs.n(), outputs.k(), dtype, use, outputs.panels(), std::move(data)));
}

PackedMatrix::PackedMatrix(int64_t n, int64_t k, DType dtype, MatrixUse use, int64_t panels,
                           Buffer data)
    : n_(n), k_(k), dtype_(dtype), use_(use), panels_(panels), data_(std::move(data)) {}

Storage PackedMatrix::storage() const { return StorageOf(dtype_); }

template <typename Visit>
void PackedMatrix::ForEachOf(int64_t row, const Visit& visit) const {
  TLM_CHECK(use_ == MatrixUse::kPlain);
  const size_t panel = static_cast<size_t>(row / kPanel * PanelElements(dtype_, k_));
  const std::byte* const from = data_.as<std::byte>() + panel * DTypeBytes(dtype_);
  const int64_t lane = row % kPanel;
  if (dtype_ != DType::kBF16) {
    for (int64_t i = 0; i < k_; ++i) visit(i, FloatAt(from, dtype_, i * kPanel + lane));
    return;
  }
  for (int64_t i = 0; i < k_; ++i) {
    visit(i, FloatAt(from, DType::kBF16, (i / 2 * kPanel + lane) * 2 + i % 2));
  }
}

void PackedMatrix::CopyRow(int64_t row, float* out) const {
  ForEachOf(row, [out](int64_t i, float value) { out[i] = value; });
}

void PackedMatrix::AddRow(int64_t row, float* to) const {
  ForEachOf(row, [to](int64_t i, float value) { to[i] += value; });
}

}  // namespace tlm
