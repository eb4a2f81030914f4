// The single-threaded inner loops of the CPU backend, one table an instruction set. Raw pointers
// and sizes; no allocation, no standard library (the table's file is compiled with wider
// instructions than the rest of the program, and an inline function shared with it could leak them
// there).
//
// All tables compute the same formulas in the same structure. Results of two tables differ in the
// last bits (fused multiply-add, vector width); results of one table never depend on how the work
// is cut into calls.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_H_
#define TLM_MODEL_OPS_CPU_KERNELS_H_

#include <cstdint>

namespace tlm {

// Columns of a packed weight panel: weights are stored [ceil(n / 16)][k][16].
inline constexpr int kPanel = 16;

// Element types a kernel reads weights, keys and values in.
enum class Storage { kF32, kBF16, kF16 };

// out[m, n] = sum over k of x[m, k] * w[n, k] for m < rows and the n of panels [panel_begin,
// panel_end). One fp32 accumulator an element, k ascending; bias[n] is added to it at the end.
struct MatMulArgs {
  const float* x = nullptr;  // [rows, k]
  int64_t x_stride = 0;
  int64_t rows = 0;
  const void* w = nullptr;  // packed, from panel 0
  Storage storage = Storage::kF32;
  int64_t k = 0;
  int64_t n = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
  const float* bias = nullptr;  // [n] or null
  float* out = nullptr;         // [rows, n]
  int64_t out_stride = 0;
};

// The attention of consecutive tokens of one sequence for some query heads of one kv head. All of
// them take their turn at a tile while it is in the cache; what one gives does not depend on the
// others.
//
// A block holds, for each kv head, keys as [head_dim][64 tokens] (so that a vector spans keys) and
// values as [64 tokens][head_dim]. Tile b covers positions 64b .. 64b + 63:
//   s_j = scale * sum_d q_d k_jd,  m = max s_j,  p_j = exp(s_j - m),  l = sum p_j,  o = sum p_j v_j
// and tiles fold from the left into (M, L, O):
//   M' = max(M, m),  L' = L e^(M-M') + l e^(m-M'),  O' = O e^(M-M') + o e^(m-M')
// beginning with the tile of the first position seen; positions before it have no part in theirs.
// The result is O / L (Milakov and Gimelshein 2018; Dao et al. 2022, section 3.1).
struct AttentionArgs {
  const float* q = nullptr;  // [tokens] rows of [heads, head_dim]
  int64_t q_stride = 0;      // between rows
  int64_t tokens = 0;        // tokens * heads <= kMaxAttentionQueries
  int64_t heads = 0;
  int64_t head_dim = 0;
  float scale = 1.0f;
  int64_t position = 0;  // of the first token
  int64_t window = 0;    // each sees the last so many positions up to its own; 0: all
  const int32_t* block_table = nullptr;
  const void* cache = nullptr;  // block 0 of the layer
  Storage storage = Storage::kF32;
  int64_t block_elements = 0;  // of one block, all heads, keys and values
  int64_t key_offset = 0;      // elements from a block's start to this head's keys
  int64_t value_offset = 0;    // likewise its values
  float* out = nullptr;        // as q
  int64_t out_stride = 0;
  float* scratch = nullptr;  // (tokens * heads + kAttentionScratchRows) * head_dim floats
};
inline constexpr int64_t kMaxAttentionQueries = 32;
inline constexpr int64_t kAttentionScratchRows = 4;

// One row's norm; the formulas are Ops::RmsNorm's and Ops::LayerNorm's. In place allowed.
struct NormArgs {
  const float* in = nullptr;  // [n]
  int64_t n = 0;
  const float* gain = nullptr;  // [n]
  const float* bias = nullptr;  // [n]; layer_norm alone
  float eps = 0.0f;
  bool eps_outside_root = false;
  float* out = nullptr;  // [n]
};

struct Kernels {
  void (*matmul)(const MatMulArgs& args);
  void (*attention)(const AttentionArgs& args);
  void (*rms_norm)(const NormArgs& args);
  void (*layer_norm)(const NormArgs& args);
  // x[j] += y[j]
  void (*add)(float* x, const float* y, int64_t n);
  // out[j] = gate[j] / (1 + exp(-gate[j])) * up[j]
  void (*swiglu)(const float* gate, const float* up, int64_t n, float* out);
  // x[j] = f(x[j]), the functions of Activation in ops.h.
  void (*silu)(float* x, int64_t n);
  void (*relu)(float* x, int64_t n);
  void (*gelu_tanh)(float* x, int64_t n);
  void (*gelu)(float* x, int64_t n);
};

// The tables. A table whose instruction set was not compiled in is absent (see AvailableIsas).
const Kernels& PortableKernels();
#if defined(__x86_64__)
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();
#endif

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_H_
