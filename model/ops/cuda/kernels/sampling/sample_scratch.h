// The data that the kernels of sample.h pass to each other, and their access to jobs and logits.
// Included by these kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_SCRATCH_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "model/ops/cuda/kernels/sampling/sample.h"
#include "model/ops/cuda/kernels/sampling/sampling_record.h"
#include "model/ops/cuda/kernels/simt.h"
#include "model/sampling/sampling_math.h"

namespace tlm {

// Logits per thread block of scan and noise. Threads read four at a time, because one Philox
// counter serves four tokens.
inline constexpr int kSampleChunk = 4096;
inline constexpr int kScanThreads = 256;
inline constexpr int kScanWarps = kScanThreads / 32;
inline constexpr uint32_t kNoToken = 0xffffffffu;

// A token above -infinity as one number that grows with its likelihood: the logit's OrderedBits,
// then the lower id. 0: no such token.
using TokenKey = uint64_t;
TLM_EVERYWHERE TokenKey MakeTokenKey(float logit, uint32_t id) {
  return uint64_t{OrderedBits(logit)} << 32 | (0xffffffffu - id);
}
TLM_EVERYWHERE float LogitOf(TokenKey key) {
  return LogitOfOrderedBits(static_cast<uint32_t>(key >> 32));
}
TLM_EVERYWHERE int32_t IdOf(TokenKey key) {
  return static_cast<int32_t>(0xffffffffu - static_cast<uint32_t>(key));
}

// Results of one chunk of a job's logits.
struct ChunkBest {
  TokenKey given = 0;             // best of the logits before adjustment
  TokenKey used = 0;              // best of the logits that the token is sampled from
  uint32_t first_bad = kNoToken;  // lowest id whose logit is NaN or +infinity
  uint32_t unused = 0;
};
struct ChunkNoise {
  double value = 0.0;
  int32_t id = 0;
  uint32_t unused = 0;
};
struct SamplingState {
  TokenKey given = 0;
  TokenKey used = 0;
  SamplingStatus status = SamplingStatus::kOk;
  uint32_t unused = 0;
};

struct SampleScratch {
  float* adjusted = nullptr;          // [max_jobs, adjusted_stride]
  ChunkBest* chunk_best = nullptr;    // [max_jobs, chunks]
  ChunkNoise* chunk_noise = nullptr;  // [max_jobs, chunks]
  // The best token that each warp of scan saw: [max_jobs, chunks * kScanWarps], for jobs with
  // top_k.
  TokenKey* warp_best = nullptr;
  SamplingState* states = nullptr;  // [max_jobs]
  int32_t* tokens = nullptr;        // [2, max_jobs], sampled by this batch and by the previous one
  // Tickets count the finished chunks of a job; 0 between launches.
  uint32_t* scan_tickets = nullptr;   // [max_jobs]
  uint32_t* noise_tickets = nullptr;  // [max_jobs]
  int64_t adjusted_stride = 0;
  uint32_t chunks = 0;
  size_t bytes = 0;
};
SampleScratch SampleScratchLayout(void* scratch, int64_t max_jobs, int64_t vocab_size);

struct SampleKernelArgs {
  SampleArgs op;
  SampleScratch scratch;
  bool wide;  // rows of logits are 16-byte aligned
  double normaliser_scale;
};

namespace simt {

TLM_DEVICE const SamplingTableHeader& HeaderOf(const SampleArgs& op) {
  return *static_cast<const SamplingTableHeader*>(op.table);
}
TLM_DEVICE const SamplingRecord& RecordOf(const SampleArgs& op, uint32_t job) {
  return reinterpret_cast<const SamplingRecord*>(static_cast<const SamplingTableHeader*>(op.table) +
                                                 1)[job];
}
TLM_DEVICE const uint32_t* WordsOf(const SampleArgs& op, const WordRange& range) {
  return static_cast<const uint32_t*>(op.table) + range.begin;
}
TLM_DEVICE SamplingOutcome& OutcomeOf(const SampleArgs& op, uint32_t job) {
  return static_cast<SamplingOutcome*>(op.outcomes)[job];
}
TLM_DEVICE TopToken* TopOf(const SampleArgs& op, uint32_t job) {
  TopToken* first =
      reinterpret_cast<TopToken*>(static_cast<SamplingOutcome*>(op.outcomes) + HeaderOf(op).jobs);
  return first + static_cast<size_t>(job) * kMaxTopTokens;
}

// The logits before adjustment, and the logits that the job's token is sampled from.
TLM_DEVICE const float* GivenRow(const SampleKernelArgs& args, const SamplingRecord& record) {
  return args.op.logits + record.row * args.op.logits_stride;
}
TLM_DEVICE const float* UsedRow(const SampleKernelArgs& args, const SamplingRecord& record,
                                uint32_t job) {
  if (record.adjusts == 0) return GivenRow(args, record);
  return args.scratch.adjusted + job * args.scratch.adjusted_stride;
}

// Loads at[0] ... at[3]; elements from `count` on are -infinity. `wide`: at is 16-byte aligned.
TLM_DEVICE void LoadFour(const float* at, int64_t count, bool wide, float (&out)[4]) {
  if (wide && count >= 4) {
    Quad quad;
    __builtin_memcpy(&quad, __builtin_assume_aligned(at, 16), sizeof(quad));
#pragma unroll
    for (int i = 0; i < 4; ++i) out[i] = FloatOfBits(quad.word[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = i < count ? at[i] : FloatOfBits(0xff800000u);
}

// Stores a job's token on the device; 0 for a job that failed.
TLM_DEVICE void PublishToken(const SampleKernelArgs& args, uint32_t job, int32_t id) {
  args.op.sampled[job] = id;
  args.scratch.tokens[HeaderOf(args.op).parity * args.op.max_jobs + job] = id;
}

// --- Reductions over a thread block of kWarps warps. `memory` [kWarps] may be reused only after
// another SyncThreads. Every thread receives the result. ---

template <int kWarps, typename T, typename Combine>
TLM_DEVICE T ReduceBlock(T value, T* memory, Combine combine) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, ShuffleXor(value, mask));
  SyncThreads();
  if (threadIdx.x % kWarpLanes == 0) memory[threadIdx.x / kWarpLanes] = value;
  SyncThreads();
  T result = memory[0];
#pragma unroll 1
  for (int warp = 1; warp < kWarps; ++warp) result = combine(result, memory[warp]);
  return result;
}
template <int kWarps>
TLM_DEVICE uint64_t MaxOfBlock(uint64_t value, uint64_t* memory) {
  return ReduceBlock<kWarps>(value, memory, [](uint64_t a, uint64_t b) { return a < b ? b : a; });
}
template <int kWarps>
TLM_DEVICE uint64_t SumOfBlock(uint64_t value, uint64_t* memory) {
  return ReduceBlock<kWarps>(value, memory, [](uint64_t a, uint64_t b) { return a + b; });
}

// A token with its noise.
struct Noisy {
  double value;
  int32_t id;
};
// Returns the sampled one of the two.
TLM_DEVICE Noisy Front(const Noisy& a, const Noisy& b) {
  return b.value > a.value || (b.value == a.value && b.id < a.id) ? b : a;
}
template <int kWarps>
TLM_DEVICE Noisy FrontOfBlock(Noisy own, Noisy* memory) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    own = Front(own, {ShuffleXor(own.value, mask), ShuffleXor(own.id, mask)});
  }
  SyncThreads();
  if (threadIdx.x % kWarpLanes == 0) memory[threadIdx.x / kWarpLanes] = own;
  SyncThreads();
  Noisy front = memory[0];
#pragma unroll 1
  for (int warp = 1; warp < kWarps; ++warp) front = Front(front, memory[warp]);
  return front;
}

// Adds noise to a token; replaces *front if the token then comes before it.
TLM_DEVICE void Consider(double scaled, uint32_t word, int32_t id, Noisy* front) {
  if (scaled + GumbelBound(word) < front->value) return;
  *front = Front(*front, {scaled + GumbelNoise(word), id});
}

// Whether this is the last thread block of the job to arrive here. If so, the stores of all others
// are visible. The complete block calls it; `flag` is in shared memory. Resets the ticket.
TLM_DEVICE bool IsLastBlock(uint32_t* ticket, uint32_t blocks, uint32_t* flag) {
  SyncThreads();
  if (threadIdx.x == 0) {
    FenceDevice();
    const bool last = AtomicAdd(ticket, 1u) == blocks - 1;
    if (last) *ticket = 0;
    FenceDevice();
    *flag = last ? 1 : 0;
  }
  SyncThreads();
  return *flag != 0;
}

// Reads values that other thread blocks stored before their ticket.
template <typename T>
TLM_DEVICE T LoadShared(const T* from) {
  static_assert(sizeof(T) % 4 == 0);
  uint32_t words[sizeof(T) / 4];
#pragma unroll
  for (size_t i = 0; i < sizeof(T) / 4; ++i) {
    words[i] = LoadVolatile(reinterpret_cast<const uint32_t*>(from) + i);
  }
  T value;
  __builtin_memcpy(&value, words, sizeof(T));
  return value;
}

}  // namespace simt
}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_SCRATCH_H_
