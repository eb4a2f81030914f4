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

// Where the weights of one output feature lie.
struct Source {
  const char* data = nullptr;  // of the first input; null past the last output
  DType dtype = DType::kF32;
  int64_t stride = 1;  // elements from one input to the next
};

int64_t OutputsOf(const TensorView& part, MatrixOrder order) {
  return part.shape[order == MatrixOrder::kOutputsFirst ? 0 : 1];
}

int64_t InputsOf(const TensorView& part, MatrixOrder order) {
  return part.shape[order == MatrixOrder::kOutputsFirst ? 1 : 0];
}

Source FindOutput(std::span<const TensorView> parts, MatrixOrder order, int64_t output) {
  for (const TensorView& part : parts) {
    const int64_t outputs = OutputsOf(part, order);
    if (output < outputs) {
      const bool outputs_first = order == MatrixOrder::kOutputsFirst;
      const int64_t first = outputs_first ? output * InputsOf(part, order) : output;
      return {part.as<char>() + static_cast<size_t>(first) * DTypeBytes(part.dtype), part.dtype,
              outputs_first ? 1 : outputs};
    }
    output -= outputs;
  }
  return {};
}

// Element types of equal width move as they are; Bits is their width. Strides of 1, the usual case,
// are worth a loop of their own.
template <typename Bits, bool kConsecutive>
void PackPanelAsIs(const Source* sources, int64_t k, Bits* panel) {
  constexpr int64_t kBlock = 32;  // keeps the source lines and the written ones in the cache
  for (int64_t begin = 0; begin < k; begin += kBlock) {
    const int64_t end = std::min(k, begin + kBlock);
    for (int r = 0; r < kPanel; ++r) {
      if (sources[r].data == nullptr) continue;
      const char* const source = sources[r].data;
      const int64_t stride = kConsecutive ? 1 : sources[r].stride;
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(&panel[i * kPanel + r], source + i * stride * sizeof(Bits), sizeof(Bits));
      }
    }
  }
}

template <typename Bits>
void PackPanelAsIs(const Source* sources, MatrixOrder order, int64_t k, Bits* panel) {
  if (order == MatrixOrder::kOutputsFirst) {
    PackPanelAsIs<Bits, true>(sources, k, panel);
  } else {
    PackPanelAsIs<Bits, false>(sources, k, panel);
  }
}

void PackPanelConverting(const Source* sources, int64_t k, float* panel) {
  for (int r = 0; r < kPanel; ++r) {
    if (sources[r].data == nullptr) continue;
    for (int64_t i = 0; i < k; ++i) {
      panel[i * kPanel + r] = ReadElement(sources[r].data, sources[r].dtype, i * sources[r].stride);
    }
  }
}

void PackPanel(std::span<const TensorView> parts, MatrixOrder order, int64_t panel, int64_t k,
               DType dtype, void* data) {
  Source sources[kPanel];
  bool as_is = true;
  for (int r = 0; r < kPanel; ++r) {
    sources[r] = FindOutput(parts, order, panel * kPanel + r);
    as_is = as_is && (sources[r].data == nullptr || sources[r].dtype == dtype);
  }
  const int64_t offset = panel * k * kPanel;
  if (!as_is) {
    PackPanelConverting(sources, k, static_cast<float*>(data) + offset);
  } else if (DTypeBytes(dtype) == 2) {
    PackPanelAsIs(sources, order, k, static_cast<uint16_t*>(data) + offset);
  } else {
    PackPanelAsIs(sources, order, k, static_cast<float*>(data) + offset);
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
                                                                 MatrixOrder order, Device& device,
                                                                 ThreadPool& pool) {
  TLM_CHECK(!parts.empty());
  const int64_t k = InputsOf(parts.front(), order);
  int64_t n = 0;
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 2 && InputsOf(part, order) == k && IsFloat(part.dtype));
    n += OutputsOf(part, order);
  }
  const DType dtype = StoredType(parts);
  const int64_t panels = (n + kPanel - 1) / kPanel;
  // Fresh memory is zero, which is what the features past n must be.
  TLM_ASSIGN_OR_RETURN(Buffer data,
                       device.Allocate(static_cast<size_t>(panels * kPanel * k) * DTypeBytes(dtype),
                                       MemoryPurpose::kWeights));
  pool.ParallelFor(panels,
                   [&](int64_t panel) { PackPanel(parts, order, panel, k, dtype, data.data()); });
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

void PackedMatrix::AddRow(int64_t row, float* to) const {
  const int64_t offset = (row / kPanel) * k_ * kPanel + row % kPanel;
  for (int64_t i = 0; i < k_; ++i) {
    to[i] += ReadElement(data_.data(), dtype_, offset + i * kPanel);
  }
}

}  // namespace tlm
