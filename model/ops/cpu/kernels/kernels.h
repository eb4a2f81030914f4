// The single-threaded inner loops of the CPU backend, one table per instruction set. They use raw
// pointers and sizes, no allocation and no standard library: a table's file is compiled with wider
// instructions than the rest of the program, and an inline function shared with it could leak them
// there.
//
// All tables compute the same formulas. Results of two tables differ in the last bits (fused
// multiply-add, vector width, bfloat16 products); results of one table never depend on how the work
// is divided into calls.
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

// The tables. A table is absent if its instruction set was not compiled in (see AvailableIsas).
const Kernels& PortableKernels();
#if defined(__x86_64__)
const Kernels& Avx2Kernels();
const Kernels& Avx512Kernels();
const Kernels& Avx512Bf16Kernels();
// Whether this processor's tiles and vectors give the same bits for the same order: computes
// adversarial products both ways. The processor must have tiles (Isa::kAmxBf16).
bool AmxVectorsAgree();
// `vectors_agree`: vectors may compute products of few rows of bfloat16.
const Kernels& AmxBf16Kernels(bool vectors_agree);
#endif

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_KERNELS_KERNELS_H_
