// Samples tokens from logits on the device. Tokens, scores and errors have the bits of Sampler
// (model/sampling/sampler.h), which defines the steps and formulas.
//
// Three kernels, each over all jobs of the table. A thread block whose job does not need the kernel
// returns at once.
//   scan    thread blocks of kSampleChunk logits: adjusts logits, finds the best token, completes
//           greedy jobs
//   noise   the same grid: argmax of logit / temperature + Gumbel noise; completes plain jobs.
//   Reads
//           only chunks whose best token is close enough to the best of all for noise to lift it
//   finish  one thread block per job: truncation by histograms of fixed-point probabilities; scores
// Bytes: scan reads jobs * vocab_size * 4, and writes as much if logits are adjusted. noise reads
// at most as much, usually almost nothing. finish reads a truncated job's row twice, more often
// only if more than some 2,000 tokens are kept; scores read it once, and `top` once or twice more.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tlm {

// The kernels that a batch of jobs needs besides scan, which always runs.
struct SampleStages {
  bool noise = false;
  bool finish = false;
};

// All pointers are to device memory. For a given number of rows everything but `stages` is
// constant, so a CUDA graph serves any jobs, if it was captured with both stages or its key
// contains the stages.
struct SampleArgs {
  const float* logits = nullptr;  // [rows, vocab_size]
  int64_t logits_stride = 0;      // elements between rows
  int64_t vocab_size = 0;         // 1 ... 2^24
  const void* table = nullptr;    // SamplingTableHeader, records and words; 16-byte aligned
  void* scratch = nullptr;        // SampleScratchBytes(), 256-byte aligned, zeroed before the first
                                  // launch; kept from one launch to the next
  int64_t max_jobs = 0;           // limit of any table; scratch was sized for it
  int64_t jobs = 0;               // jobs launched: at least the table's
  void* outcomes = nullptr;       // SamplingOutcome and TopToken, 16-byte aligned
  int32_t* sampled = nullptr;     // [jobs]: each job's token; 0 if it failed or is a host job
};

size_t SampleScratchBytes(int64_t max_jobs, int64_t vocab_size);

// Loads the kernels. Call it once on a device, before the first launch.
cudaError_t LoadSample();
cudaError_t LaunchSample(const SampleArgs& args, const SampleStages& stages, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_H_
