#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/sampling/sample.h"
#include "model/ops/cuda/kernels/sampling/sample_adjust.h"
#include "model/ops/cuda/kernels/sampling/sample_kernels.h"
#include "model/ops/cuda/kernels/sampling/sample_scratch.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

struct ScanMemory {
  uint64_t reduce[kScanWarps];
  uint32_t last;
  AdjustMemory adjust;
};

// One thread's results from its logits.
struct Seen {
  TokenKey given = 0;
  TokenKey used = 0;
  uint32_t first_bad = kNoToken;
};

TLM_DEVICE TokenKey Likelier(TokenKey best, float logit, uint32_t id) {
  if (!(logit > FloatOfBits(0xff800000u))) return best;
  const TokenKey key = MakeTokenKey(logit, id);
  return key > best ? key : best;
}

// Adds a logit before adjustment.
TLM_DEVICE void See(float logit, uint32_t id, Seen* seen) {
  // Written so that it catches NaN.
  if (!(logit < FloatOfBits(0x7f800000u)) && id < seen->first_bad) seen->first_bad = id;
  seen->given = Likelier(seen->given, logit, id);
}

TLM_DEVICE void SeeChunk(const SampleKernelArgs& args, const float* row, const IdSpan& span,
                         float* copy, Seen* seen) {
  const bool wide = args.wide;
#pragma unroll
  for (uint32_t i = 0; i < kSampleChunk / (4 * kScanThreads); ++i) {
    const uint32_t at = (i * kScanThreads + threadIdx.x) * 4;
    const int64_t count = static_cast<int64_t>(span.end) - span.begin - at;
    float logits[4];
    LoadFour(row + span.begin + at, count, wide, logits);
#pragma unroll
    for (uint32_t j = 0; j < 4; ++j) {
      See(logits[j], span.begin + at + j, seen);
      if (copy != nullptr) copy[at + j] = logits[j];
    }
  }
}

TLM_DEVICE void AdjustAndStore(const SampleKernelArgs& args, const SamplingRecord& record,
                               uint32_t job, const IdSpan& span, AdjustMemory* memory, Seen* seen) {
  uint32_t pending = kNoToken;
  if (record.pending_job != kNoPendingJob) {
    const uint32_t before = 1 - HeaderOf(args.op).parity;
    pending =
        static_cast<uint32_t>(args.scratch.tokens[before * args.op.max_jobs + record.pending_job]);
  }
  SyncThreads();
  AdjustChunk(args.op, record, span, pending, memory);
  float* out = args.scratch.adjusted + job * args.scratch.adjusted_stride + span.begin;
  for (uint32_t at = threadIdx.x; at < span.end - span.begin; at += kScanThreads) {
    out[at] = memory->logits[at];
    seen->used = Likelier(seen->used, memory->logits[at], span.begin + at);
  }
}

TLM_DEVICE SamplingStatus StatusOf(const Seen& seen) {
  if (seen.first_bad != kNoToken) return SamplingStatus::kNotADistribution;
  if (seen.given == 0) return SamplingStatus::kAllExcluded;
  return seen.used == 0 ? SamplingStatus::kNoneLeft : SamplingStatus::kOk;
}

// Called by thread 0, with the combined chunks.
TLM_DEVICE void EndScan(const SampleKernelArgs& args, const SamplingRecord& record, uint32_t job,
                        const Seen& seen) {
  const SamplingStatus status = StatusOf(seen);
  args.scratch.states[job] = {seen.given, seen.used, status, 0};
  SamplingOutcome outcome;
  outcome.status = status;
  if (status == SamplingStatus::kNotADistribution) {
    outcome.id = static_cast<int32_t>(seen.first_bad);
    outcome.detail_bits = FloatBits(GivenRow(args, record)[seen.first_bad]);
  } else if (status == SamplingStatus::kOk) {
    outcome.id = IdOf(seen.used);
  }
  OutcomeOf(args.op, job) = outcome;
  if (status != SamplingStatus::kOk || record.kind == SamplingKind::kGreedy) {
    PublishToken(args, job, status == SamplingStatus::kOk ? outcome.id : 0);
  }
}

TLM_DEVICE Seen OfBlock(const Seen& seen, uint64_t* memory) {
  Seen all;
  all.given = MaxOfBlock<kScanWarps>(seen.given, memory);
  all.used = MaxOfBlock<kScanWarps>(seen.used, memory);
  all.first_bad = static_cast<uint32_t>(
      kNoToken - MaxOfBlock<kScanWarps>(uint64_t{kNoToken} - seen.first_bad, memory));
  return all;
}

TLM_DEVICE void StoreWarpBest(const SampleKernelArgs& args, uint32_t job, TokenKey best) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    const TokenKey other = ShuffleXor(best, mask);
    best = other > best ? other : best;
  }
  if (threadIdx.x % kWarpLanes != 0) return;
  const size_t chunk = static_cast<size_t>(job) * args.scratch.chunks + blockIdx.x;
  args.scratch.warp_best[chunk * kScanWarps + threadIdx.x / kWarpLanes] = best;
}

// Grid (chunks, jobs). A thread takes runs of four logits, 256 runs apart. The last thread block of
// a job combines its chunks.
TLM_KERNEL __launch_bounds__(kScanThreads) Scan(const SampleKernelArgs args) {
  LetNextStart();
  WaitForPrevious();
  const uint32_t job = blockIdx.y;
  if (job >= HeaderOf(args.op).jobs) return;
  const SamplingRecord& record = RecordOf(args.op, job);
  if (record.kind == SamplingKind::kHost) {
    if (blockIdx.x == 0 && threadIdx.x == 0) PublishToken(args, job, 0);
    return;
  }
  ScanMemory* memory = SharedMemory<ScanMemory>();
  const bool adjusts = record.adjusts != 0;
  const uint32_t begin = blockIdx.x * kSampleChunk;
  const uint32_t vocab_size = static_cast<uint32_t>(args.op.vocab_size);
  const uint32_t end = vocab_size - begin < kSampleChunk ? vocab_size : begin + kSampleChunk;

  Seen seen;
  SeeChunk(args, GivenRow(args, record), {begin, end}, adjusts ? memory->adjust.logits : nullptr,
           &seen);
  if (adjusts) {
    AdjustAndStore(args, record, job, {begin, end}, &memory->adjust, &seen);
  } else {
    seen.used = seen.given;
  }
  if (record.top_k > 0) StoreWarpBest(args, job, seen.used);
  const Seen chunk = OfBlock(seen, memory->reduce);
  ChunkBest* chunks = args.scratch.chunk_best + job * args.scratch.chunks;
  if (threadIdx.x == 0) chunks[blockIdx.x] = {chunk.given, chunk.used, chunk.first_bad, 0};
  if (!IsLastBlock(args.scratch.scan_tickets + job, args.scratch.chunks, &memory->last)) return;

  Seen own;
  for (uint32_t i = threadIdx.x; i < args.scratch.chunks; i += kScanThreads) {
    const ChunkBest one = LoadShared(chunks + i);
    own.given = one.given > own.given ? one.given : own.given;
    own.used = one.used > own.used ? one.used : own.used;
    own.first_bad = one.first_bad < own.first_bad ? one.first_bad : own.first_bad;
  }
  const Seen all = OfBlock(own, memory->reduce);
  if (threadIdx.x == 0) EndScan(args, record, job, all);
}

template <typename T>
T* Take(std::byte* base, int64_t count, size_t* used) {
  T* array = reinterpret_cast<T*>(base + *used);
  *used += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
  return array;
}

}  // namespace

SampleScratch SampleScratchLayout(void* memory, int64_t max_jobs, int64_t vocab_size) {
  std::byte* base = static_cast<std::byte*>(memory);
  SampleScratch scratch;
  scratch.adjusted_stride = (vocab_size + 3) / 4 * 4;
  scratch.chunks = static_cast<uint32_t>((vocab_size + kSampleChunk - 1) / kSampleChunk);
  const int64_t chunks = max_jobs * scratch.chunks;
  scratch.states = Take<SamplingState>(base, max_jobs, &scratch.bytes);
  scratch.tokens = Take<int32_t>(base, 2 * max_jobs, &scratch.bytes);
  scratch.scan_tickets = Take<uint32_t>(base, max_jobs, &scratch.bytes);
  scratch.noise_tickets = Take<uint32_t>(base, max_jobs, &scratch.bytes);
  scratch.chunk_best = Take<ChunkBest>(base, chunks, &scratch.bytes);
  scratch.warp_best = Take<TokenKey>(base, chunks * kScanWarps, &scratch.bytes);
  scratch.chunk_noise = Take<ChunkNoise>(base, chunks, &scratch.bytes);
  scratch.adjusted = Take<float>(base, max_jobs * scratch.adjusted_stride, &scratch.bytes);
  return scratch;
}

size_t SampleScratchBytes(int64_t max_jobs, int64_t vocab_size) {
  return SampleScratchLayout(nullptr, max_jobs, vocab_size).bytes;
}

cudaError_t LoadSample() {
  cudaError_t error = LoadKernel(Scan);
  if (error == cudaSuccess) error = LoadNoise();
  if (error == cudaSuccess) error = LoadFinishSampling();
  return error;
}

cudaError_t LaunchSample(const SampleArgs& op, const SampleStages& stages, cudaStream_t stream) {
  if (op.jobs == 0) return cudaSuccess;
  const SampleKernelArgs args = {
      .op = op,
      .scratch = SampleScratchLayout(op.scratch, op.max_jobs, op.vocab_size),
      .wide = reinterpret_cast<uintptr_t>(op.logits) % 16 == 0 && op.logits_stride % 4 == 0,
      .normaliser_scale = NormaliserScale(op.vocab_size)};
  const dim3 grid(args.scratch.chunks, static_cast<unsigned>(op.jobs));
  cudaError_t error =
      Launch(Scan, {.grid = grid, .block = dim3(kScanThreads), .shared_bytes = sizeof(ScanMemory)},
             stream, args);
  if (error == cudaSuccess && stages.noise) error = LaunchNoise(args, stream);
  if (error == cudaSuccess && stages.finish) error = LaunchFinishSampling(args, stream);
  return error;
}

}  // namespace tlm
