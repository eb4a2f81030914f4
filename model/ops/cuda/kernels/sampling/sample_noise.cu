#include "model/ops/cuda/kernels/launch.h"
#include "model/ops/cuda/kernels/sampling/sample_kernels.h"
#include "model/ops/cuda/kernels/sampling/sample_scratch.h"
#include "model/ops/cuda/kernels/simt.h"

namespace tlm {
namespace {

using namespace simt;

struct NoiseMemory {
  Noisy reduce[kScanWarps];
  uint32_t last;
};

// Adds noise to the four tokens of one Philox counter.
TLM_DEVICE void ConsiderFour(const float (&logits)[4], uint32_t id, float best,
                             const SamplingRecord& record, const NoiseKey& key, Noisy* front) {
  double scaled[4];
  bool hopeless = true;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    scaled[i] = ScaledLogit(logits[i], best, record.inverse_temperature);
    hopeless = hopeless && scaled[i] + kMaxGumbel < front->value;
  }
  if (hopeless) return;
  uint32_t words[4];
  NoiseWords(key, id / 4, words);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    Consider(scaled[i], words[i], static_cast<int32_t>(id) + i, front);
  }
}

// Grid (chunks, jobs), like Scan. Every thread starts from the most likely token and skips
// everything that cannot beat it, before any logarithm: complete chunks, tokens, and tokens by
// their random word.
TLM_KERNEL __launch_bounds__(kScanThreads) Noise(const SampleKernelArgs args) {
  LetNextStart();
  WaitForPrevious();
  const uint32_t job = blockIdx.y;
  if (job >= HeaderOf(args.op).jobs) return;
  const SamplingRecord& record = RecordOf(args.op, job);
  if (record.kind != SamplingKind::kPlain) return;
  const SamplingState state = args.scratch.states[job];
  if (state.status != SamplingStatus::kOk) return;

  NoiseMemory* memory = SharedMemory<NoiseMemory>();
  const NoiseKey key = {record.seed, record.position, record.output_index};
  const float best = LogitOf(state.used);
  Noisy front = {GumbelNoise(NoiseWord(key, IdOf(state.used))), IdOf(state.used)};
  const TokenKey chunk_best = args.scratch.chunk_best[job * args.scratch.chunks + blockIdx.x].used;
  const double nearest = ScaledLogit(LogitOf(chunk_best), best, record.inverse_temperature);
  if (chunk_best != 0 && nearest + kMaxGumbel >= front.value) {
    const float* row = UsedRow(args, record, job);
    const bool wide = args.wide || record.adjusts != 0;
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * kSampleChunk;
#pragma unroll 2
    for (int i = 0; i < kSampleChunk / (4 * kScanThreads); ++i) {
      const int64_t id = begin + (i * kScanThreads + threadIdx.x) * 4;
      float logits[4];
      LoadFour(row + id, args.op.vocab_size - id, wide, logits);
      ConsiderFour(logits, static_cast<uint32_t>(id), best, record, key, &front);
    }
    front = FrontOfBlock<kScanWarps>(front, memory->reduce);
  }
  ChunkNoise* chunks = args.scratch.chunk_noise + job * args.scratch.chunks;
  if (threadIdx.x == 0) chunks[blockIdx.x] = {front.value, front.id, 0};
  if (!IsLastBlock(args.scratch.noise_tickets + job, args.scratch.chunks, &memory->last)) return;

  for (uint32_t i = threadIdx.x; i < args.scratch.chunks; i += kScanThreads) {
    const ChunkNoise one = LoadShared(chunks + i);
    front = Front(front, {one.value, one.id});
  }
  front = FrontOfBlock<kScanWarps>(front, memory->reduce);
  if (threadIdx.x != 0) return;
  OutcomeOf(args.op, job).id = front.id;
  PublishToken(args, job, front.id);
}

}  // namespace

cudaError_t LoadNoise() { return LoadKernel(Noise); }

cudaError_t LaunchNoise(const SampleKernelArgs& args, cudaStream_t stream) {
  const dim3 grid(args.scratch.chunks, static_cast<unsigned>(args.op.jobs));
  return Launch(Noise,
                {.grid = grid, .block = dim3(kScanThreads), .shared_bytes = sizeof(NoiseMemory)},
                stream, args);
}

}  // namespace tlm
