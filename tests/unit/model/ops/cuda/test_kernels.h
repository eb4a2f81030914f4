// Kernels that stand for a model's where tests are about what is around them.
#ifndef TLM_TESTS_UNIT_MODEL_OPS_CUDA_TEST_KERNELS_H_
#define TLM_TESTS_UNIT_MODEL_OPS_CUDA_TEST_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>

namespace tlm {

// Before any of them is launched into a graph.
cudaError_t LoadTestKernels();

// out[i] = in[i] + 1 for 32 elements.
struct AddOneArgs {
  const int32_t* in;
  int32_t* out;
};
cudaError_t LaunchAddOne(const AddOneArgs& args, cudaStream_t stream);
// Copies 16 bytes from in + 1, which is no multiple of 16: a fault.
cudaError_t LaunchMisaligned(const AddOneArgs& args, cudaStream_t stream);

// A model of one block: token i's id (or the sampled token it refers to) plus its position and its
// sequence's first block is its row of logits, and the row's first logit its token.
inline constexpr int64_t kStepVocab = 4;
struct StepArgs {
  const int32_t* token_ids;
  const int32_t* positions;
  const int32_t* table_of;
  const int32_t* block_tables;
  const int32_t* jobs;  // of each of two jobs: the row to sample from
  float* logits;
  const int32_t* sampled_before;
  int32_t* sampled;
  int32_t* results;
};
// For 32 tokens.
cudaError_t LaunchStep(const StepArgs& args, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_OPS_CUDA_TEST_KERNELS_H_
