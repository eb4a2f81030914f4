#include "model/ops/cpu/int8_matrix.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cpu/convert.h"

namespace tlm {
namespace {

// A group of a panel, on its way.
struct PanelGroup {
  alignas(64) float widened[kPanel * kInt8Group];  // of types and orders no kernel reads
  alignas(64) int8_t q[kPanel * kInt8Group];       // rows Int8PaddedInputs(inputs) apart
  float scales[kPanel];
  int32_t offsets[kPanel];
};

template <typename Element, typename ToFloat>
void WidenAs(const char* from, int64_t stride, int64_t count, const ToFloat& to_float, float* out) {
  const size_t step = static_cast<size_t>(stride) * sizeof(Element);
  for (int64_t i = 0; i < count; ++i, from += step) {
    Element element;
    std::memcpy(&element, from, sizeof(element));
    out[i] = to_float(element);
  }
}

void Widen(const char* from, DType dtype, int64_t stride, int64_t count, float* out) {
  switch (dtype) {
    case DType::kBF16:
      return WidenAs<uint16_t>(from, stride, count, Bf16ToFloat, out);
    case DType::kF16:
      return WidenAs<uint16_t>(from, stride, count, F16ToFloat, out);
    case DType::kF64:
      return WidenAs<double>(
          from, stride, count, [](double value) { return static_cast<float>(value); }, out);
    default:
      return WidenAs<float>(
          from, stride, count, [](float value) { return value; }, out);
  }
}

Storage KernelType(DType dtype) {
  if (dtype == DType::kBF16) return Storage::kBF16;
  return dtype == DType::kF16 ? Storage::kF16 : Storage::kF32;
}

// Quantises inputs [first, first + count) of one output to row `lane`.
void QuantizeOutput(const OutputWeights& weights, int64_t first, int64_t count, int lane,
                    const Kernels& kernels, PanelGroup& group) {
  Int8QuantizeArgs args{.k = count,
                        .begin = 0,
                        .end = 1,
                        .rows = {.values = group.q + lane * Int8PaddedInputs(count),
                                 .stride = Int8PaddedInputs(count),
                                 .scales = group.scales + lane,
                                 .offsets = group.offsets + lane}};
  const char* const from =
      weights.data + static_cast<size_t>(first * weights.stride) * DTypeBytes(weights.dtype);
  if (weights.stride == 1 && weights.dtype != DType::kF64) {
    args.x = from;
    args.x_type = KernelType(weights.dtype);
  } else {
    float* const widened = group.widened + lane * kInt8Group;
    Widen(from, weights.dtype, weights.stride, count, widened);
    args.x = widened;
  }
  kernels.quantize_rows(args);
}

// The rows of a group, four inputs at a time, side by side; then their scales.
void Interleave(const PanelGroup& group, int64_t inputs, std::byte* to) {
  constexpr uint32_t kOffsets = 0x01010101u * kInt8Offset;
  for (int64_t i = 0; i < inputs; i += 4) {
    for (int lane = 0; lane < kPanel; ++lane, to += 4) {
      uint32_t four;
      std::memcpy(&four, group.q + lane * inputs + i, sizeof(four));
      four ^= kOffsets;  // adds 128 to each, without a carry
      std::memcpy(to, &four, sizeof(four));
    }
  }
  std::memcpy(to, group.scales, sizeof(group.scales));
}

// False where a value is not finite.
bool PackPanel(const MatrixParts& parts, int64_t panel, const Kernels& kernels, std::byte* to) {
  PanelGroup group;
  bool finite = true;
  for (int64_t first = 0; first < parts.k(); first += kInt8Group) {
    const int64_t count = std::min(parts.k() - first, kInt8Group);
    const int64_t inputs = Int8PaddedInputs(count);
    for (int lane = 0; lane < kPanel; ++lane) {
      const OutputWeights weights = parts.At(panel, lane);
      if (weights.data == nullptr) {
        std::memset(group.q + lane * inputs, 0, static_cast<size_t>(inputs));
        group.scales[lane] = 0.0f;
        continue;
      }
      QuantizeOutput(weights, first, count, lane, kernels, group);
      finite &= !std::isnan(group.scales[lane]);
    }
    Interleave(group, inputs, to);
    to += Int8GroupBytes(inputs);
  }
  return finite;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Int8Matrix>> Int8Matrix::Pack(const MatrixParts& parts,
                                                             MatrixUse use, const Kernels& kernels,
                                                             Device& device, ThreadPool& pool) {
  const auto panel_bytes = static_cast<size_t>(Int8PanelBytes(parts.k()));
  TLM_ASSIGN_OR_RETURN(
      Buffer data,
      device.Allocate(static_cast<size_t>(parts.panels()) * panel_bytes, MemoryPurpose::kWeights));
  std::atomic<bool> finite = true;
  pool.ParallelFor(parts.panels(), [&](int64_t panel) {
    std::byte* const to = data.as<std::byte>() + static_cast<size_t>(panel) * panel_bytes;
    if (!PackPanel(parts, panel, kernels, to)) finite.store(false, std::memory_order_relaxed);
  });
  if (!finite.load(std::memory_order_relaxed)) {
    return InvalidArgument("a matrix of {} outputs and {} inputs has a value that is not finite",
                           parts.n(), parts.k());
  }
  return std::unique_ptr<Int8Matrix>(new Int8Matrix(parts, use, std::move(data)));
}

template <typename Take>
void Int8Matrix::ForEachWeight(int64_t row, const Take& take) const {
  TLM_CHECK(use_ == MatrixUse::kPlain);
  const uint8_t* group = data_.as<uint8_t>() + row / kPanel * Int8PanelBytes(k_);
  const int64_t lane = row % kPanel;
  const int64_t padded = Int8PaddedInputs(k_);
  for (int64_t first = 0; first < k_; first += kInt8Group) {
    const int64_t inputs = std::min(padded - first, kInt8Group);
    const int64_t count = std::min(k_ - first, kInt8Group);
    float scale;
    std::memcpy(&scale, group + inputs * kPanel + lane * static_cast<int64_t>(sizeof(scale)),
                sizeof(scale));
    for (int64_t i = 0; i < count; ++i) {
      const int stored = group[(i / 4 * kPanel + lane) * 4 + i % 4];
      take(first + i, static_cast<float>(stored - kInt8Offset) * scale);
    }
    group += Int8GroupBytes(inputs);
  }
}

void Int8Matrix::CopyRow(int64_t row, float* out) const {
  ForEachWeight(row, [out](int64_t i, float weight) { out[i] = weight; });
}

void Int8Matrix::AddRow(int64_t row, float* to) const {
  ForEachWeight(row, [to](int64_t i, float weight) { to[i] += weight; });
}

}  // namespace tlm
