// What Ops asks to become of a product, as the kernels take it.
#ifndef TLM_MODEL_OPS_CPU_EPILOGUE_H_
#define TLM_MODEL_OPS_CPU_EPILOGUE_H_

#include "model/ops/cpu/kernels/matmul.h"
#include "model/ops/ops.h"

namespace tlm {

// Of MatMul into `out`, F32 or BF16.
EpilogueArgs EpilogueArgsOf(const Epilogue& epilogue, const Rows& out);
// Of MatMulGated.
EpilogueArgs GatedEpilogueArgsOf(const float* bias, const Rows& out);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_EPILOGUE_H_
