// Finds the shortest prefix of an order over tokens that has enough weight, without sorting: by
// histograms of integers, first by a coarse key of the order, then digit by digit of the exact key.
// Integer sums give the same set for every order of threads. Included by kernels only.
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_SELECT_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_SELECT_H_

#include <cstdint>

#include "model/ops/cuda/kernels/sampling/sample_tokens.h"

namespace tlm::simt {

// Clears the histogram, by the complete thread block. No other thread may access it meanwhile.
TLM_DEVICE void ClearHistogram(SelectMemory* memory) {
  SyncThreads();
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    const uint32_t bin = i * kSelectThreads + threadIdx.x;
    memory->tokens[bin] = 0;
    memory->low[bin] = 0;
    memory->high[bin] = 0;
  }
  if (threadIdx.x == 0) memory->found = {};
  SyncThreads();
}

TLM_DEVICE void AddToBin(SelectMemory* memory, uint32_t bin, uint32_t tokens, uint64_t weight) {
  AtomicAdd(&memory->tokens[bin], tokens);
  if (weight == 0) return;
  // Adds 64 bits by two 32-bit additions, because shared memory has no 64-bit one: the carry of the
  // first goes into the second.
  const uint32_t low = static_cast<uint32_t>(weight);
  const uint32_t old = AtomicAdd(&memory->low[bin], low);
  const uint32_t high = static_cast<uint32_t>(weight >> 32) + (old + low < old ? 1 : 0);
  if (high != 0) AtomicAdd(&memory->high[bin], high);
}

// Exclusive prefix sum over the threads of the block; *total is the sum over all.
template <typename T>
TLM_DEVICE T SumBefore(T own, T* memory, T* total) {
  const int lane = threadIdx.x % kWarpLanes;
  const int warp = threadIdx.x / kWarpLanes;
  T sum = own;
#pragma unroll
  for (int distance = 1; distance < kWarpLanes; distance *= 2) {
    const T other = Shuffle(sum, lane >= distance ? lane - distance : lane);
    if (lane >= distance) sum += other;
  }
  SyncThreads();
  if (lane == kWarpLanes - 1) memory[warp] = sum;
  SyncThreads();
  T before = sum - own;
  *total = 0;
#pragma unroll 1
  for (int i = 0; i < kSelectWarps; ++i) {
    if (i < warp) before += memory[i];
    *total += memory[i];
  }
  return before;
}

// The weight that the prefix must have.
struct Wanted {
  enum class Unit : uint32_t {
    kTokens,
    kWeight,
    kPart,  // a part of the total weight
  };
  Unit unit;
  double amount;
};

// Finds the bin in which the number of tokens or their weight, counted from `base` on, reaches
// *wanted. Converts a wanted part into a weight.
TLM_DEVICE Bin FindBin(SelectMemory* memory, const Bin& base, Wanted* wanted) {
  const bool counts = wanted->unit == Wanted::Unit::kTokens;
  SyncThreads();
  uint64_t weights[kBinsPerThread];
  uint32_t tokens[kBinsPerThread];
  uint64_t own_weight = 0;
  uint32_t own_tokens = 0;
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    const uint32_t bin = threadIdx.x * kBinsPerThread + i;
    tokens[i] = memory->tokens[bin];
    weights[i] = counts ? tokens[i] : uint64_t{memory->high[bin]} << 32 | memory->low[bin];
    own_weight += weights[i];
    own_tokens += tokens[i];
  }
  uint64_t total_weight;
  uint32_t total_tokens;
  uint64_t weight = base.weight_before + SumBefore(own_weight, memory->reduce, &total_weight);
  uint32_t count = base.tokens_before + SumBefore(own_tokens, memory->warp_tokens, &total_tokens);
  if (wanted->unit == Wanted::Unit::kPart) {
    *wanted = {Wanted::Unit::kWeight, wanted->amount * static_cast<double>(total_weight)};
  }
  // The sum reaches it once, so in at most one thread and bin.
#pragma unroll
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    const uint64_t after = weight + weights[i];
    if (static_cast<double>(weight) < wanted->amount &&
        !(static_cast<double>(after) < wanted->amount)) {
      memory->found = {weight, count, threadIdx.x * kBinsPerThread + i, tokens[i], 0};
    }
    weight = after;
    count += tokens[i];
  }
  SyncThreads();
  return memory->found;
}

struct Rule {
  Tokens::Order order;
  Wanted wanted;
};

TLM_DEVICE uint64_t PrimaryKey(const Tokens& tokens, const Rule& rule, float logit) {
  return rule.order == Tokens::Order::kLikely ? LikelyKey(logit)
                                              : DoubleBits(tokens.Distance(logit));
}
// A monotonic function of the primary key, with fewer bits.
TLM_DEVICE uint32_t CoarseKey(const Tokens& tokens, const Rule& rule, float logit) {
  const double measure = rule.order == Tokens::Order::kLikely
                             ? -ScaledLogit(logit, tokens.front, tokens.front_scale)
                             : tokens.Distance(logit);
  const double scaled = measure * 64.0;
  return scaled < static_cast<double>(kBins - 1) ? static_cast<uint32_t>(scaled) : kBins - 1;
}
TLM_DEVICE uint64_t WeightOf(const Tokens& tokens, const Rule& rule, float logit) {
  return rule.wanted.unit == Wanted::Unit::kTokens ? 0 : ProbabilityWeight(tokens.Scaled(logit));
}

TLM_DEVICE Bin FindCoarse(const Tokens& tokens, const Rule& rule, Wanted* wanted) {
  SelectMemory* memory = tokens.memory;
  ClearHistogram(memory);
  // Most of a vocabulary is in the last bin, so each thread adds to it only once.
  uint32_t last_tokens = 0;
  uint64_t last_weight = 0;
  tokens.ForEach(tokens.listed, [&](uint32_t, float logit) {
    const uint32_t bin = CoarseKey(tokens, rule, logit);
    const uint64_t weight = WeightOf(tokens, rule, logit);
    if (bin == kBins - 1) {
      ++last_tokens;
      last_weight += weight;
    } else {
      AddToBin(memory, bin, 1, weight);
    }
  });
  if (last_tokens > 0) AddToBin(memory, kBins - 1, last_tokens, last_weight);
  return FindBin(memory, {}, wanted);
}

// Puts those tokens in play whose coarse key is in [first, last] on the list.
TLM_DEVICE void MakeList(const Tokens& tokens, const Rule& rule, uint32_t first, uint32_t last) {
  SelectMemory* memory = tokens.memory;
  SyncThreads();
  if (threadIdx.x == 0) memory->list_size = 0;
  SyncThreads();
  tokens.ForEach(false, [&](uint32_t id, float logit) {
    const uint32_t bin = CoarseKey(tokens, rule, logit);
    if (bin < first || bin > last) return;
    const uint32_t slot = AtomicAdd(&memory->list_size, 1u);
    memory->list_ids[slot] = id;
    memory->list_logits[slot] = logit;
  });
  SyncThreads();
}

// The known part of the key at the boundary: its coarse key, then the upper bits of its primary
// key, then the whole primary key and the upper bits of the id.
struct Known {
  uint32_t coarse;
  bool by_id = false;
  uint64_t primary = 0;
  uint64_t prefix = 0;
  uint32_t rest;  // lower bits of the current key that are not known yet
};

// Calls f(current key, primary key, id, logit) for the tokens in play that agree with the known
// part.
template <typename F>
TLM_DEVICE void ForAgreeing(const Tokens& tokens, bool from_list, const Rule& rule,
                            const Known& known, F f) {
  tokens.ForEach(from_list, [&](uint32_t id, float logit) {
    if (CoarseKey(tokens, rule, logit) != known.coarse) return;
    const uint64_t primary = PrimaryKey(tokens, rule, logit);
    if (known.by_id && primary != known.primary) return;
    const uint64_t key = known.by_id ? id : primary;
    if (known.rest < 64 && key >> known.rest != known.prefix) return;
    f(key, primary, id, logit);
  });
}

// The token of coarse bin `bin` at which the number of tokens or their weight reaches `wanted`.
TLM_DEVICE Cut FindExact(const Tokens& tokens, bool from_list, const Rule& rule, Bin bin,
                         Wanted wanted) {
  SelectMemory* memory = tokens.memory;
  Known known{.coarse = bin.index, .rest = rule.order == Tokens::Order::kLikely ? 32u : 64u};
#pragma unroll 1
  while (bin.tokens > 1) {
    if (known.rest == 0) {
      // Tokens with equal keys are ordered by their ids, of which no two are equal.
      known.by_id = true;
      known.primary = known.prefix;
      known.prefix = 0;
      known.rest = kIdBits;
    }
    const uint32_t digit_bits = known.rest < kDigitBits ? known.rest : kDigitBits;
    const uint32_t shift = known.rest - digit_bits;
    ClearHistogram(memory);
    ForAgreeing(tokens, from_list, rule, known, [&](uint64_t key, uint64_t, uint32_t, float logit) {
      const uint32_t digit = static_cast<uint32_t>(key >> shift) & ((1u << digit_bits) - 1);
      AddToBin(memory, digit, 1, WeightOf(tokens, rule, logit));
    });
    bin = FindBin(memory, bin, &wanted);
    known.prefix = known.prefix << digit_bits | bin.index;
    known.rest = shift;
  }
  ForAgreeing(tokens, from_list, rule, known, [&](uint64_t, uint64_t primary, uint32_t id, float) {
    memory->boundary = {primary, id};
  });
  SyncThreads();
  return memory->boundary;
}

// Returns the cut that leaves those tokens, first in the rule's order, that have the wanted weight.
// Puts tokens that stay in play on the list, if there is room.
TLM_DEVICE Cut SelectFirst(const Rule& rule, Tokens* tokens) {
  Wanted wanted = rule.wanted;
  const Bin bin = FindCoarse(*tokens, rule, &wanted);
  if (bin.index == kBins) return {};
  bool from_list = tokens->listed;
  if (!from_list && bin.tokens_before + bin.tokens <= kListTokens) {
    MakeList(*tokens, rule, 0, bin.index);
    from_list = tokens->listed = true;
  } else if (!from_list && bin.tokens <= kListTokens) {
    MakeList(*tokens, rule, bin.index, bin.index);
    from_list = true;
  }
  return FindExact(*tokens, from_list, rule, bin, wanted);
}

}  // namespace tlm::simt

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLE_SELECT_H_
