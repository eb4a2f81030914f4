// AdjustLogits (model/sampling/adjust_logits.h) for one chunk of a job's logits in shared memory.
// Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_ADJUST_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_ADJUST_H_

#include <cstdint>

#include "model/ops/cuda/kernels/sampling/sample_scratch.h"

namespace tlm {

// A chunk's logits, and which of its tokens are removed.
struct AdjustMemory {
  float logits[kSampleChunk];
  uint32_t
      removed[kSampleChunk / 32];  // one bit per token; in PenaliseChunk: the ids of record.draft
  uint32_t pending_seen;
};

namespace simt {

// Tokens [begin, end) of the vocabulary.
struct IdSpan {
  uint32_t begin;
  uint32_t end;
};

// The index of the first of `count` entries of `stride` words, with ascending ids, whose id is not
// below `id`.
TLM_DEVICE uint32_t FirstNotBelow(const uint32_t* entries, uint32_t count, uint32_t stride,
                                  uint32_t id) {
  uint32_t low = 0;
  uint32_t high = count;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    if (entries[middle * stride] < id) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Calls f(index in the chunk, entry) for the entries whose ids are in the span, each in one thread.
template <typename F>
TLM_DEVICE void ForEntriesIn(const uint32_t* entries, uint32_t count, uint32_t stride,
                             const IdSpan& span, F f) {
  const uint32_t end = FirstNotBelow(entries, count, stride, span.end);
  for (uint32_t i = FirstNotBelow(entries, count, stride, span.begin) + threadIdx.x; i < end;
       i += kScanThreads) {
    f(entries[i * stride] - span.begin, i);
  }
}

TLM_DEVICE void AddBias(const SampleArgs& op, const SamplingRecord& record, const IdSpan& span,
                        AdjustMemory* memory) {
  const uint32_t* entries = WordsOf(op, record.bias);
  ForEntriesIn(entries, record.bias.words / 2, 2, span, [&](uint32_t at, uint32_t i) {
    const float logit = memory->logits[at];
    const float infinity = FloatOfBits(0x7f800000u);
    if (logit > -infinity && logit < infinity) {
      memory->logits[at] = KeptFinite(logit + FloatOfBits(entries[2 * i + 1]));
    }
  });
}

// Sets the bits of `removed`.
TLM_DEVICE void MarkRemoved(const SampleArgs& op, const SamplingRecord& record, const IdSpan& span,
                            AdjustMemory* memory) {
  const uint32_t* bits = WordsOf(op, record.removed);
  const bool only_allowed = record.allowed.words > 0;
  for (uint32_t i = threadIdx.x; i < kSampleChunk / 32; i += kScanThreads) {
    const uint32_t word = span.begin / 32 + i;
    memory->removed[i] =
        word < record.removed.words ? bits[word] : (only_allowed ? 0xffffffffu : 0u);
  }
  SyncThreads();
  if (only_allowed) {
    const uint32_t* ids = WordsOf(op, record.allowed);
    // Each id is in the list once, so subtracting its bit clears it.
    ForEntriesIn(ids, record.allowed.words, 1, span, [&](uint32_t at, uint32_t) {
      AtomicAdd(&memory->removed[at / 32], 0u - (1u << (at % 32)));
    });
    SyncThreads();
  }
  const uint32_t* ids = WordsOf(op, record.banned);
  ForEntriesIn(ids, record.banned.words, 1, span, [&](uint32_t at, uint32_t) {
    AtomicOr(&memory->removed[at / 32], 1u << (at % 32));
  });
}

TLM_DEVICE void Penalise(const Penalties& penalties, uint32_t seen, float* logit) {
  const float infinity = FloatOfBits(0x7f800000u);
  if (!(*logit > -infinity && *logit < infinity)) return;
  *logit = PenalisedLogit(*logit, penalties, (seen & 1u) != 0, seen / 2);
}

// Reuses `removed`, which is no longer needed, for the draft's ids.
TLM_DEVICE void MarkDraft(const SampleArgs& op, const SamplingRecord& record, const IdSpan& span,
                          AdjustMemory* memory) {
  for (uint32_t i = threadIdx.x; i < kSampleChunk / 32; i += kScanThreads) memory->removed[i] = 0;
  SyncThreads();
  ForEntriesIn(
      WordsOf(op, record.draft), record.draft.words / 2, 2, span,
      [&](uint32_t at, uint32_t) { AtomicOr(&memory->removed[at / 32], 1u << (at % 32)); });
  SyncThreads();
}

// `pending`: a token that is in the output once more than in the history, or kNoToken.
TLM_DEVICE void PenaliseChunk(const SampleArgs& op, const SamplingRecord& record,
                              const IdSpan& span, uint32_t pending, AdjustMemory* memory) {
  const Penalties penalties = {record.repetition_penalty, record.presence_penalty,
                               record.frequency_penalty};
  const auto penalise = [&](uint32_t at, uint32_t seen) {
    if (span.begin + at == pending) {
      seen += 2;
      memory->pending_seen = 1;
    }
    Penalise(penalties, seen, &memory->logits[at]);
  };
  const bool drafted = record.draft.words > 0;
  if (drafted) MarkDraft(op, record, span, memory);
  const uint32_t* entries = WordsOf(op, record.history);
  for (uint32_t i = threadIdx.x; i < record.history.words / 2; i += kScanThreads) {
    const uint32_t id = entries[2 * i];
    if (id < span.begin || id >= span.end) continue;
    const uint32_t at = id - span.begin;
    if (drafted && (memory->removed[at / 32] >> (at % 32) & 1u) != 0) continue;
    penalise(at, entries[2 * i + 1]);
  }
  const uint32_t* draft = WordsOf(op, record.draft);
  ForEntriesIn(draft, record.draft.words / 2, 2, span,
               [&](uint32_t at, uint32_t i) { penalise(at, draft[2 * i + 1]); });
  SyncThreads();
  if (threadIdx.x == 0 && pending >= span.begin && pending < span.end &&
      memory->pending_seen == 0) {
    Penalise(penalties, 2, &memory->logits[pending - span.begin]);
  }
}

// Adjusts memory->logits, which hold the tokens of `span`. The logits must be visible to the
// complete thread block, and are visible to it afterwards.
TLM_DEVICE void AdjustChunk(const SampleArgs& op, const SamplingRecord& record, const IdSpan& span,
                            uint32_t pending, AdjustMemory* memory) {
  if (threadIdx.x == 0) memory->pending_seen = 0;
  AddBias(op, record, span, memory);
  MarkRemoved(op, record, span, memory);
  SyncThreads();
  for (uint32_t at = threadIdx.x; at < span.end - span.begin; at += kScanThreads) {
    if ((memory->removed[at / 32] >> (at % 32) & 1u) != 0) {
      memory->logits[at] = FloatOfBits(0xff800000u);
    }
  }
  SyncThreads();
  if (record.penalises != 0) PenaliseChunk(op, record, span, pending, memory);
  SyncThreads();
}

}  // namespace simt
}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_ADJUST_H_
