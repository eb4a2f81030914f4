#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/simt.h"
#include "tests/unit/model/ops/cuda/test_kernels.h"

namespace tlm {
namespace {

TLM_KERNEL AddOne(const AddOneArgs args) {
  simt::WaitForPrevious();
  args.out[threadIdx.x] = args.in[threadIdx.x] + 1;
}

TLM_KERNEL Misaligned(const AddOneArgs args) {
  simt::WaitForPrevious();
  simt::CopyAsync16(simt::SharedMemory<int32_t>(), args.in + 1);
  simt::CopyAsyncCommit();
  simt::CopyAsyncWait<0>();
}

TLM_KERNEL Step(const StepArgs args) {
  simt::WaitForPrevious();
  const int t = static_cast<int>(threadIdx.x);
  if (args.positions[t] >= 0) {
    const int32_t id = args.token_ids[t];
    const int32_t token = id >= 0 ? id : args.sampled_before[-1 - id];
    const int32_t block = args.block_tables[args.table_of[t]];
    for (int v = 0; v < kStepVocab; ++v) {
      args.logits[t * kStepVocab + v] = static_cast<float>(token + args.positions[t] + block + v);
    }
  }
  simt::SyncThreads();
  if (t < 2) {
    args.sampled[t] = static_cast<int32_t>(args.logits[args.jobs[t] * kStepVocab]);
    args.results[t] = -args.sampled[t];
  }
}

}  // namespace

cudaError_t LoadTestKernels() { return LoadKernels(AddOne, Misaligned, Step); }

cudaError_t LaunchAddOne(const AddOneArgs& args, cudaStream_t stream) {
  return Launch(AddOne, {.grid = dim3(1), .block = dim3(32)}, stream, args);
}

cudaError_t LaunchMisaligned(const AddOneArgs& args, cudaStream_t stream) {
  return Launch(Misaligned, {.grid = dim3(1), .block = dim3(32), .shared_bytes = 1024}, stream,
                args);
}

cudaError_t LaunchStep(const StepArgs& args, cudaStream_t stream) {
  return Launch(Step, {.grid = dim3(1), .block = dim3(32)}, stream, args);
}

}  // namespace tlm
