// The matrix product on one thread; kernels.h describes what all kernels share.
//
// The arithmetic of element (m, n), k ascending, for every number of rows:
//   rows of float     one fp32 accumulator, a fused multiply-add for each k (without fused
//                     arithmetic: a product and a sum); weights are widened exactly
//   rows of bfloat16  avx512_bf16: one fp32 accumulator, a vdpbf16ps for each pair of k
//                     amx_bf16: for each 32 k, E = sum of the even k from 0, O = sum of the odd k
//                     from 0, C += E + O; subnormal inputs and results count as 0 (tdpbf16ps)
// and then EpilogueArgs.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_MATMUL_H_
#define TLM_MODEL_OPS_CPU_KERNELS_MATMUL_H_

#include <cstdint>

#include "model/ops/cpu/kernels/storage.h"

namespace tlm {

// Outputs of a packed panel.
inline constexpr int kPanel = 16;
// bfloat16 panels pad their inputs with zeros to a multiple of this.
inline constexpr int kBf16InputStep = 32;

// The functions of Activation in ops.h.
enum class ElementFunction { kNone, kSilu, kRelu, kGeluTanh, kGelu };

// Operations on the sums of a row, in this order.
struct EpilogueArgs {
  const float* bias = nullptr;  // [outputs]; if gated [2 outputs]: the gates', then the others'
  ElementFunction function = ElementFunction::kNone;
  // Panels of gates and of gated values alternate: out = silu(g) * u.
  bool gated = false;
  int64_t outputs = 0;               // columns of out
  void* out = nullptr;               // [rows, outputs]
  Storage out_type = Storage::kF32;  // or kBF16
  int64_t out_stride = 0;
};

// Multiplies all rows by panels [panel_begin, panel_end). A panel holds 16 outputs:
//   float, half  [k][16]
//   bfloat16     [k / 2][16][2], k rounded up to kBf16InputStep
// Missing outputs are zero. Gated: panel_begin and panel_end are even.
struct MatMulArgs {
  const void* x = nullptr;         // [rows, k]; nothing else is read
  Storage x_type = Storage::kF32;  // kBF16 only with weights of kBF16 if HasBf16Products
  int64_t x_stride = 0;            // elements
  int64_t rows = 0;
  // The same rows as written by pack_rows, if MatMulNeeds requires them.
  const uint32_t* packed_x = nullptr;
  int64_t tile_rows = 0;
  // Room for kWidenedPanels panels of k floats each, if MatMulNeeds requires it.
  float* widened = nullptr;
  const void* w = nullptr;  // packed, from panel 0
  Storage w_type = Storage::kF32;
  int64_t k = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  // The panels that the thread reads next, worth prefetching; -1: not known.
  int64_t next_panel = -1;
  EpilogueArgs epilogue;
};

// What a table's matmul requires in addition to the operands, for rows and weights of these types.
struct MatMulNeeds {
  int tile_rows = 0;       // packed_x has tiles of at most this many rows; 0: rows are not packed
  bool widened = false;    // weights need room as floats
  int64_t part_bytes = 0;  // limit for the bytes of a call's rows; 0: no limit
};
inline constexpr int kWidenedPanels = 2;

// Packs rows into units of 32 bits, a float or two bfloat16 (k rounded up to a multiple of 2 with a
// zero), and into tiles of tile_rows; the last tile has the remaining rows:
//   out [tiles][UnitsOf(k)][rows of the tile]
struct PackRowsArgs {
  const void* x = nullptr;  // [rows, k]; nothing else is read
  Storage x_type = Storage::kF32;
  int64_t x_stride = 0;  // elements
  int64_t rows = 0;
  int64_t tile_rows = 0;
  int64_t k = 0;
  uint32_t* out = nullptr;
};

inline constexpr int64_t UnitsOf(Storage x_type, int64_t k) {
  return x_type == Storage::kBF16 ? (k + 1) / 2 : k;
}

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_MATMUL_H_
