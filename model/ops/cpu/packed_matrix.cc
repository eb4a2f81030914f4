#include "model/ops/cpu/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/ops/cpu/convert.h"

namespace tlm {
namespace {

// The type all parts are stored in: one 16-bit type if all agree on it, else F32.
DType StoredType(std::span<const TensorView> parts) {
  const DType first = parts.front().dtype;
  const bool alike = std::all_of(parts.begin(), parts.end(),
                                 [first](const TensorView& part) { return part.dtype == first; });
  return alike && (first == DType::kBF16 || first == DType::kF16) ? first : DType::kF32;
}

// Where row `row` of the stacked matrix comes from.
struct SourceRow {
  const void* data = nullptr;  // null past the last row
  DType dtype = DType::kF32;
};

SourceRow FindRow(std::span<const TensorView> parts, int64_t row) {
  for (const TensorView& part : parts) {
    if (row < part.shape[0]) {
      const size_t row_bytes = static_cast<size_t>(part.shape[1]) * DTypeBytes(part.dtype);
      return {part.as<char>() + static_cast<size_t>(row) * row_bytes, part.dtype};
    }
    row -= part.shape[0];
  }
  return {};
}

// Element types of equal width move as they are; Bits is their width.
template <typename Bits>
void PackPanelAsIs(const SourceRow* rows, int64_t k, Bits* panel) {
  constexpr int64_t kBlock = 32;  // keeps the 16 source lines and the written ones in the cache
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t end = std::min(k, begin + kBlock);
    for (int r = 0; r < kPanel; ++r) {
      if (rows[r].data == nullptr) continue;
      const char* const source = static_cast<const char*>(rows[r].data);
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(&panel[i * kPanel + r], source + i * sizeof(Bits), sizeof(Bits));
      }
    }
  }
}

void PackPanelConverting(const SourceRow* rows, int64_t k, float* panel) {
  for (int r = 0; r < kPanel; ++r) {
    if (rows[r].data == nullptr) continue;
    for (int64_t i = 0; i < k; ++i) {
      panel[i * kPanel + r] = ReadElement(rows[r].data, rows[r].dtype, i);
    }
  }
}

void PackPanel(std::span<const TensorView> parts, int64_t panel, int64_t k, DType dtype,
               void* data) {
  SourceRow rows[kPanel];
  bool as_is = true;
  for (int r = 0; r < kPanel; ++r) {
    rows[r] = FindRow(parts, panel * kPanel + r);
    as_is = as_is && (rows[r].data == nullptr || rows[r].dtype == dtype);
  }
  const int64_t offset = panel * k * kPanel;
  if (!as_is) {
    PackPanelConverting(rows, k, static_cast<float*>(data) + offset);
  } else if (DTypeBytes(dtype) == 2) {
    PackPanelAsIs(rows, k, static_cast<uint16_t*>(data) + offset);
  } else {
    PackPanelAsIs(rows, k, static_cast<float*>(data) + offset);
  }
}

}  // namespace

Storage StorageOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return Storage::kBF16;
    case DType::kF16:
      return Storage::kF16;
    default:
      TLM_CHECK(dtype == DType::kF32);
      return Storage::kF32;
  }
}

absl::StatusOr<std::unique_ptr<PackedMatrix>> PackedMatrix::Pack(std::span<const TensorView> parts,
                                                                 Device& device, ThreadPool& pool) {
  TLM_CHECK(!parts.empty());
  const int64_t k = parts.front().shape[1];
  int64_t n = 0;
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 2 && part.shape[1] == k && IsFloat(part.dtype));
    n += part.shape[0];
  }
  const DType dtype = StoredType(parts);
  const int64_t panels = (n + kPanel - 1) / kPanel;
  // Fresh memory is zero, which is what the features past n must be.
  TLM_ASSIGN_OR_RETURN(Buffer data,
                       device.Allocate(static_cast<size_t>(panels * kPanel * k) * DTypeBytes(dtype),
                                       MemoryPurpose::kWeights));
  pool.ParallelFor(panels, [&](int64_t panel) { PackPanel(parts, panel, k, dtype, data.data()); });
  return std::unique_ptr<PackedMatrix>(new PackedMatrix(n, k, dtype, std::move(data)));
}

PackedMatrix::PackedMatrix(int64_t n, int64_t k, DType dtype, Buffer data)
    : n_(n), k_(k), dtype_(dtype), data_(std::move(data)) {}

Storage PackedMatrix::storage() const { return StorageOf(dtype_); }

void PackedMatrix::CopyRow(int64_t row, float* out) const {
  const int64_t offset = (row / kPanel) * k_ * kPanel + row % kPanel;
  for (int64_t i = 0; i < k_; ++i) {
    out[i] = ReadElement(data_.data(), dtype_, offset + i * kPanel);
  }
}

}  // namespace tlm
