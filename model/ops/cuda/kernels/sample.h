// Choosing tokens from logits on the device: bit for bit the tokens, scores and refusals of Sampler
// (model/sampling/sampler.h), whose steps and formulas these are.
//
// Three kernels, each over the jobs of the table: a kernel that a job does not need returns at
// once.
//   scan    blocks of kSampleChunk logits: adjusts them, finds the best; ends greedy jobs
//   noise   the same blocks: argmax of logit / temperature + Gumbel noise; ends plain jobs. Reads
//           only blocks whose best token is near enough for noise to bring it to the front
//   finish  a block per job: truncation by histograms of fixed-point probabilities, and scores
// Bytes: scan reads jobs * vocab_size * 4, and where logits are adjusted writes as much. noise
// reads as much at most, most often next to nothing. finish reads a truncated job's row twice, and
// more often only where more than some 2,000 tokens are kept; scores read it once, and `top` once
// or twice more.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLE_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tlm {

// Kernels a batch of jobs needs beside scan; scan is always run.
struct SampleStages {
  bool noise = false;
  bool finish = false;
};

// All pointers are to device memory. Everything but `stages` stays the same for a given number of
// rows, so that a captured graph serves any jobs: it is then recorded with both stages, or its key
// tells the stages too.
struct SampleArgs {
  const float* logits = nullptr;  // [rows, vocab_size]
  int64_t logits_stride = 0;      // elements between rows
  int64_t vocab_size = 0;         // 1 ... 2^24
  const void* table = nullptr;    // SamplingTableHeader and what follows, 16-byte aligned
  void* scratch = nullptr;        // SampleScratchBytes(), 256-byte aligned, zeros before the first
                                  // launch; kept from one launch to the next
  int64_t max_jobs = 0;           // of any table; what scratch was sized for
  int64_t jobs = 0;               // blocks are started for so many: at least those of the table
  void* outcomes = nullptr;       // SamplingOutcome and TopToken, 16-byte aligned
  int32_t* sampled = nullptr;     // [jobs]: each job's token; 0 where it failed or is the host's
};

size_t SampleScratchBytes(int64_t max_jobs, int64_t vocab_size);

// Loads the kernels; once on a device, before the first launch.
cudaError_t LoadSample();
cudaError_t LaunchSample(const SampleArgs& args, const SampleStages& stages, cudaStream_t stream);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLE_H_
