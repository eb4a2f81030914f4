// From accumulators to outputs, as GemmOutput says. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_GEMM_FINISH_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_GEMM_FINISH_H_

#include <cstdint>

#include "model/ops/cuda/kernels/activations.h"
#include "model/ops/cuda/kernels/gemm_args.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm::simt {

// Gates (and ups) of a group in a gated matrix.
inline constexpr int kGateGroup = 16;

TLM_HOST_DEVICE float Activated(GemmActivation activation, float v) {
  switch (activation) {
    case GemmActivation::kNone:
      return v;
    case GemmActivation::kSilu:
      return Silu(v);
    case GemmActivation::kRelu:
      return Relu(v);
    case GemmActivation::kGeluTanh:
      return GeluTanh(v);
    case GemmActivation::kGelu:
      return Gelu(v);
  }
  return v;
}

template <typename T>
TLM_DEVICE float RoundOutput(const GemmOutput& output, float v) {
  return output.out_float32 ? v : ToFloat(FromFloat<T>(v));
}

// v of `column`, before the activation.
template <typename T>
TLM_DEVICE float Biased(const GemmOutput& output, float accumulator, int64_t column) {
  const float v = RoundOutput<T>(output, accumulator);
  return output.bias == nullptr ? v : RoundOutput<T>(output, v + output.bias[column]);
}

template <typename T>
TLM_DEVICE void Store(const GemmOutput& output, int64_t token, int64_t column, float v) {
  const int64_t at = token * output.out_stride + column;
  if (output.out_float32) {
    static_cast<float*>(output.out)[at] = v;
  } else {
    static_cast<T*>(output.out)[at] = FromFloat<T>(v);
  }
}

// Stores one output of a plain product. kActivates: output.activation may be one.
template <typename T, bool kActivates>
TLM_DEVICE void StorePlain(const GemmOutput& output, int64_t token, int64_t column,
                           float accumulator) {
  float v = Biased<T>(output, accumulator, column);
  if constexpr (kActivates) {
    if (output.activation != GemmActivation::kNone) v = Activated(output.activation, v);
  }
  Store<T>(output, token, column, v);
}

// Stores output `column` of `columns` of a gated product.
template <typename T>
TLM_DEVICE void StoreGated(const GemmOutput& output, int64_t token, int64_t column, int64_t columns,
                           float gate, float up) {
  const float g = Biased<T>(output, gate, column);
  const float u = Biased<T>(output, up, columns + column);
  Store<T>(output, token, column, Silu(g) * u);
}

// Stored row of a gated matrix [n, ..] that belongs at place `within` (< 32: 16 gates, then 16 ups)
// of group `group`; -1: that place is empty, of a last group that is narrower.
TLM_HOST_DEVICE int64_t GatedRow(int64_t n, int64_t group, int within) {
  const int64_t first = group * kGateGroup;
  const int64_t left = n / 2 - first;
  const int width = left < kGateGroup ? static_cast<int>(left) : kGateGroup;
  const int index = within % kGateGroup;
  if (index >= width) return -1;
  return 2 * first + (within < kGateGroup ? index : width + index);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_GEMM_FINISH_H_
