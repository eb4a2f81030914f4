// The single-threaded inner loops of the CPU backend, one table an instruction set. Raw pointers
// and sizes; no allocation, no standard library (the table's file is compiled with wider
// instructions than the rest of the program, and an inline function shared with it could leak them
// there).
//
// All tables compute the same formulas. Results of two tables differ in the last bits (fused
// multiply-add, vector width, bfloat16 products); results of one table never depend on how the work
// is cut into calls.
#ifndef TLM_MODEL_OPS_CPU_KERNELS_KERNELS_H_
#define TLM_MODEL_OPS_CPU_KERNELS_KERNELS_H_

#include "model/ops/cpu/kernels/attention.h"
#include "model/ops/cpu/kernels/matmul.h"
#include "model/ops/cpu/kernels/quant.h"
#include "model/ops/cpu/kernels/rows.h"

namespace tlm {

struct Kernels {
  void (*matmul)(const MatMulArgs& args);
  MatMulNeeds (*needs_of_matmul)(Storage x_type, Storage w_type);
  void (*pack_rows)(const PackRowsArgs& args);
  void (*attention)(const AttentionArgs& args);
  void (*fold_attention)(const FoldArgs& args);
  void (*store_kv)(const StoreKvArgs& args);
  void (*add_norm)(const AddNormArgs& args);
  void (*prepare_heads)(const HeadsArgs& args);
  void (*quantize_rows)(const QuantizeArgs& args);
  void (*matmul_quant)(const QuantMatMulArgs& args);
};

// The tables. A table whose instruction set was not compiled in is absent (see AvailableIsas).
const Kernels& PortableKernels();
#if defined(__x86_64__)
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();
const Kernels& Avx512Bf16Kernels();
// Whether this processor's tiles give the bits that vectors give in their order: computes
// adversarial products both ways. It must have tiles (Isa::kAmxBf16).
bool AmxVectorsAgree();
// `vectors_agree`: products of few rows of bfloat16 may be computed by vectors.
const Kernels& AmxBf16Kernels(bool vectors_agree);
#endif

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_KERNELS_H_
