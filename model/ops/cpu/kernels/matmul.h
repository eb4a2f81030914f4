// The matrix product of one thread; see kernels.h for what all kernels have in common.
//
// Arithmetic of element (m, n), k ascending, at every number of rows:
//   rows of float     one fp32 accumulator, a fused multiply-add for each k (without fused
//                     arithmetic: a product and a sum); weights are widened exactly
//   rows of bfloat16  avx512_bf16: one fp32 accumulator, a vdpbf16ps for each pair of k
//                     amx_bf16: for each 32 k, E = sum of the even ones from 0, O = sum of the odd
//                     ones from 0, C += E + O, subnormals taken and left as 0 (tdpbf16ps)
// and then EpilogueArgs.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_MATMUL_H_
#define TLM_MODEL_OPS_CPU_KERNELS_MATMUL_H_

#include <cstdint>

#include "model/ops/cpu/kernels/storage.h"

namespace tlm {

// Outputs of a packed panel.
inline constexpr int kPanel = 16;
// Inputs that bfloat16 panels are padded to a multiple of, with zeros.
inline constexpr int kBf16InputStep = 32;

// The functions of Activation in ops.h.
enum class ElementFunction { kNone, kSilu, kRelu, kGeluTanh, kGelu };

// What is applied to the sums of a row, in this order.
struct EpilogueArgs {
  const float* bias =
      nullptr;  // [outputs], of a gated matrix [2 outputs]: gates', then the others'
  ElementFunction function = ElementFunction::kNone;
  // Panels are those of gates and of what they gate in turns: out = silu(g) * u.
  bool gated = false;
  int64_t outputs = 0;               // columns of out
  void* out = nullptr;               // [rows, outputs]
  Storage out_type = Storage::kF32;  // or kBF16
  int64_t out_stride = 0;
};

// The panels [panel_begin, panel_end) of all rows. A panel holds 16 outputs:
//   float, half  [k][16]
//   bfloat16     [k / 2][16][2], k rounded up to kBf16InputStep
// Outputs past the end are zero. Gated: panel_begin and panel_end are even.
struct MatMulArgs {
  const void* x = nullptr;         // [rows, k]; nothing is read beside
  Storage x_type = Storage::kF32;  // kBF16 only with weights of kBF16 where HasBf16Products
  int64_t x_stride = 0;            // elements
  int64_t rows = 0;
  // The same rows as pack_rows leaves them, where MatMulNeeds asks for it.
  const uint32_t* packed_x = nullptr;
  int64_t tile_rows = 0;
  // Room for kWidenedPanels panels of k floats each, where asked for.
  float* widened = nullptr;
  const void* w = nullptr;  // packed, from panel 0
  Storage w_type = Storage::kF32;
  int64_t k = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  // The panels that the thread reads afterwards, worth fetching ahead; -1: it is not known.
  int64_t next_panel = -1;
  EpilogueArgs epilogue;
};

// What a table's matmul asks for beside the operands, of rows and weights of these types.
struct MatMulNeeds {
  int tile_rows = 0;     // packed_x, in tiles of at most so many rows; 0: it reads rows as they lie
  bool widened = false;  // room for weights as floats
  int64_t part_bytes = 0;  // of rows that a call should get at most; 0: any number
};
inline constexpr int kWidenedPanels = 2;

// Rows in units of 32 bits, a float or two bfloat16 (k rounded up to a multiple of 2 with a zero),
// and in tiles of tile_rows, the last with what is left:
//   out [tiles][UnitsOf(k)][rows of the tile]
struct PackRowsArgs {
  const void* x = nullptr;  // [rows, k]; nothing is read beside
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
