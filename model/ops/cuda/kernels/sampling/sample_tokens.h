// The tokens of a job that are still in play (not yet removed by truncation), and the thread
// block's memory for choosing among them. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_TOKENS_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_TOKENS_H_

#include <cstdint>

#include "model/ops/cuda/kernels/sampling/sample_scratch.h"

namespace tlm::simt {

inline constexpr int kSelectThreads = 512;
inline constexpr int kSelectWarps = kSelectThreads / kWarpLanes;
inline constexpr int kDigitBits = 11;
inline constexpr uint32_t kBins = 1 << kDigitBits;
inline constexpr uint32_t kBinsPerThread = kBins / kSelectThreads;
inline constexpr uint32_t kListTokens = 2048;
inline constexpr uint32_t kIdBits = 2 * kDigitBits + 2;  // 2^24 tokens

// The bin of a histogram that has the boundary, and the sums of the earlier bins.
struct Bin {
  uint64_t weight_before = 0;
  uint32_t tokens_before = 0;
  uint32_t index = kBins;  // kBins: all bins together do not reach it
  uint32_t tokens = 0;
  uint32_t unused = 0;
};

// A place in an order: tokens up to and including it are kept.
struct Cut {
  uint64_t primary = ~uint64_t{0};
  uint32_t id = kNoToken;

  TLM_DEVICE bool Keeps(uint64_t other, uint32_t other_id) const {
    return other < primary || (other == primary && other_id <= id);
  }
  // Makes this the earlier one of the two.
  TLM_DEVICE void Tighten(const Cut& other) {
    if (Keeps(other.primary, other.id)) *this = other;
  }
};

struct SelectMemory {
  // Histogram: the number of tokens per bin, and their weight in two words.
  uint32_t tokens[kBins];
  uint32_t low[kBins];
  uint32_t high[kBins];
  // The list has tokens of the row that are examined again.
  uint32_t list_ids[kListTokens];
  float list_logits[kListTokens];
  TokenKey warp_best[kSelectThreads];
  uint32_t list_size;
  uint32_t top_size;
  uint64_t reduce[kSelectWarps];
  Noisy noisy[kSelectWarps];
  uint32_t warp_tokens[kSelectWarps];
  Bin found;
  Cut boundary;
  uint32_t top_ids[kMaxTopTokens];
  float top_logits[kMaxTopTokens];
};
static_assert(sizeof(SelectMemory) <= 48 * 1024);

// Orders by descending logit; equal ones by id.
TLM_DEVICE uint64_t LikelyKey(float logit) { return 0xffffffffu - OrderedBits(logit); }

// The tokens of a row with their logits, and which of them are in play.
struct Tokens {
  enum class Order : uint32_t { kLikely, kTypical };
  enum class Filter : uint32_t {
    kKept,       // the tokens that the cuts keep
    kAll,        // all of the row, with the logits as they are
    kProcessed,  // all of the row, with the logits after truncation and temperature
  };

  const float* row = nullptr;
  uint32_t vocab_size = 0;
  SelectMemory* memory = nullptr;
  bool listed = false;  // the list has all tokens in play
  Filter filter = Filter::kKept;

  // CoarseKey measures likelihood relative to these: the largest logit in play, and a scale.
  float front = 0.0f;
  double front_scale = 1.0;

  float best = 0.0f;  // logit of the most likely token that the cuts keep
  double inverse_temperature = 1.0;
  Cut likely;
  bool typical = false;  // typical_p: cut by distance from the mean information
  float typical_best = 0.0f;
  double mean = 0.0;
  Cut unusual;
  double floor =
      DoubleOfBits(0xfff0000000000000);  // min_p's limit of the scaled logit, or -infinity

  TLM_DEVICE double Scaled(float logit) const {
    return ScaledLogit(logit, best, inverse_temperature);
  }
  // Distance from the mean information, relative to typical_best.
  TLM_DEVICE double Distance(float logit) const {
    const double gap = -ScaledLogit(logit, typical_best, inverse_temperature);
    // Clears the sign; also makes -0 into 0.
    return DoubleOfBits(DoubleBits(gap - mean) & 0x7fffffffffffffff);
  }
  TLM_DEVICE bool Keeps(uint32_t id, float logit) const {
    if (!(logit > FloatOfBits(0xff800000u)) || !likely.Keeps(LikelyKey(logit), id)) return false;
    if (typical && !unusual.Keeps(DoubleBits(Distance(logit)), id)) return false;
    return !(Scaled(logit) < floor);
  }
  TLM_DEVICE float Processed(uint32_t id, float logit) const {
    return Keeps(id, logit) ? static_cast<float>(Scaled(logit)) : FloatOfBits(0xff800000u);
  }

  // The list has the tokens in play, but without the filter kKept, which may have changed since.
  template <typename F>
  TLM_DEVICE void Visit(bool from_list, uint32_t id, float logit, F f) const {
    if (filter == Filter::kKept) {
      if (Keeps(id, logit)) f(id, logit);
    } else {
      f(id, from_list || filter == Filter::kAll ? logit : Processed(id, logit));
    }
  }
  // Calls f(id, logit) for every token in play, each in one thread.
  template <typename F>
  TLM_DEVICE void ForEach(bool from_list, F f) const {
    constexpr uint32_t kAtOnce = 4;
    const uint32_t count = from_list ? memory->list_size : vocab_size;
#pragma unroll 1
    for (uint32_t begin = threadIdx.x; begin < count; begin += kAtOnce * kSelectThreads) {
      uint32_t ids[kAtOnce];
      float logits[kAtOnce];
#pragma unroll
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        const uint32_t at = begin + i * kSelectThreads;
        ids[i] = at < count && from_list ? memory->list_ids[at] : at;
        logits[i] = at >= count ? 0.0f : (from_list ? memory->list_logits[at] : row[at]);
      }
      // Not unrolled: one copy of f, with the tokens shifted through, because an array with a
      // run-time index cannot be in registers.
#pragma unroll 1
      for (uint32_t i = 0; i < kAtOnce; ++i) {
        if (begin + i * kSelectThreads < count) Visit(from_list, ids[0], logits[0], f);
#pragma unroll
        for (uint32_t j = 0; j + 1 < kAtOnce; ++j) {
          ids[j] = ids[j + 1];
          logits[j] = logits[j + 1];
        }
      }
    }
  }
};

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_TOKENS_H_
