// The arithmetic of sampling a token, for Sampler and for the kernels of a GPU: the same bits
// everywhere, so the same tokens.
#ifndef TLM_MODEL_SAMPLING_SAMPLING_MATH_H_
#define TLM_MODEL_SAMPLING_SAMPLING_MATH_H_

#include <cstdint>

#include "model/base/elementary.h"

namespace tlm {

// --- Single logits. ---

// An extreme bias or penalty must not remove a token, nor make it the only one.
TLM_EVERYWHERE float KeptFinite(float value) {
  constexpr float kLargest = 3.40282347e38f;
  return value < -kLargest ? -kLargest : (value > kLargest ? kLargest : value);
}

struct Penalties {
  float repetition = 1.0f;
  float presence = 0.0f;
  float frequency = 0.0f;
};

// Applies the penalties to a finite logit of a token that is in the prompt or `in_output` times in
// the output.
TLM_EVERYWHERE float PenalisedLogit(float logit, const Penalties& penalties, bool in_prompt,
                                    uint32_t in_output) {
  if (in_prompt || in_output > 0) {
    logit = logit > 0.0f ? logit / penalties.repetition : logit * penalties.repetition;
  }
  if (in_output > 0) {
    logit -= penalties.frequency * static_cast<float>(in_output);
    logit -= penalties.presence;
  }
  return KeptFinite(logit);
}

// Returns (logit - best logit) / temperature, which is <= 0.
TLM_EVERYWHERE double ScaledLogit(float logit, float best, double inverse_temperature) {
  return (static_cast<double>(logit) - static_cast<double>(best)) * inverse_temperature;
}

// --- Sums. Sums of fixed-point numbers are the same in any order. ---

// Rounds `value` in [0, 1] to a multiple of 1 / scale and multiplies it by `scale`, a power of two
// up to 2^51: adding 2^52 leaves the integer in the low bits.
TLM_EVERYWHERE uint64_t FixedPoint(double value, double scale) {
  return DoubleBits(value * scale + 0x1p52) - DoubleBits(0x1p52);
}

// The scale of probabilities in truncation: 2^39 times at most 2^24 tokens fits 64 bits.
inline constexpr double kWeightScale = 0x1p39;

// Returns the probability of a token relative to the best one, from ScaledLogit.
TLM_EVERYWHERE uint64_t ProbabilityWeight(double scaled_logit) {
  return FixedPoint(ExpOfNegative(scaled_logit), kWeightScale);
}
// Returns the probability times the token's information relative to the best one's.
TLM_EVERYWHERE uint64_t InformationWeight(double scaled_logit) {
  return FixedPoint(ExpOfNegative(scaled_logit) * -scaled_logit, kWeightScale);
}

// Returns the finest scale at which `vocab_size` (at most 2^24) probabilities fit 64 bits.
TLM_EVERYWHERE double NormaliserScale(int64_t vocab_size) {
  double scale = 0x1p51;
  for (int64_t limit = 2048; limit < vocab_size; limit *= 2) scale *= 0.5;
  return scale;
}
// Returns one token's part of the sum of e^logit, relative to the largest logit.
TLM_EVERYWHERE uint64_t NormaliserWeight(float logit, float max, double scale) {
  return FixedPoint(ExpOfNegative(ScaledLogit(logit, max, 1.0)), scale);
}
// Returns the log of the sum of e^logit: a logit minus this is a log-probability.
TLM_EVERYWHERE double Normaliser(float max, uint64_t sum, double scale) {
  return static_cast<double>(max) + Log(static_cast<double>(sum) * (1.0 / scale));
}
// Never returns -0: the sign of a zero logit makes no difference.
TLM_EVERYWHERE float LogProbability(float logit, double normaliser) {
  return static_cast<float>(static_cast<double>(logit) - normaliser) + 0.0f;
}

// --- Noise. ---

// Computes one round of Philox4x32.
TLM_EVERYWHERE void PhiloxRound(uint32_t (&counter)[4], uint32_t key0, uint32_t key1) {
  const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
  const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
  counter[0] = static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0;
  counter[1] = static_cast<uint32_t>(product1);
  counter[2] = static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1;
  counter[3] = static_cast<uint32_t>(product0);
}

// Philox4x32-10, the counter-based random generator of Salmon et al. 2011 ("Parallel random
// numbers: as easy as 1, 2, 3"): turns the counter's four words into four uniform random ones.
TLM_EVERYWHERE void PhiloxWords(uint32_t (&counter)[4], uint64_t key) {
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    PhiloxRound(counter, key0, key1);
    key0 += 0x9E3779B9;  // the golden ratio's fraction
    key1 += 0xBB67AE85;  // the fraction of sqrt(3)
  }
}

// The noise of a sample depends on this and on the token.
struct NoiseKey {
  uint64_t seed = 0;
  uint64_t position = 0;
  uint32_t output_index = 0;
};

// Computes the uniform words of tokens 4 * group, ..., 4 * group + 3.
TLM_EVERYWHERE void NoiseWords(const NoiseKey& key, uint32_t group, uint32_t (&words)[4]) {
  words[0] = static_cast<uint32_t>(key.position);
  words[1] = static_cast<uint32_t>(key.position >> 32);
  words[2] = key.output_index;
  words[3] = group;
  PhiloxWords(words, key.seed);
}
TLM_EVERYWHERE uint32_t NoiseWord(const NoiseKey& key, int32_t id) {
  uint32_t words[4];
  NoiseWords(key, static_cast<uint32_t>(id) / 4, words);
  // The token does not index `words`: an array with a run-time index has no place in registers.
  const uint32_t even = (id & 2) == 0 ? words[0] : words[2];
  const uint32_t odd = (id & 2) == 0 ? words[1] : words[3];
  return (id & 1) == 0 ? even : odd;
}

// Returns the Gumbel noise of a token from its uniform word.
TLM_EVERYWHERE double GumbelNoise(uint32_t word) {
  const double uniform = (static_cast<double>(word) + 0.5) * 0x1p-32;
  return -Log(-Log(uniform));
}

// Returns an upper bound of GumbelNoise(word) at less cost: with u the uniform number,
// -log(-log(u)) <= -log(1 - u), and the exponent of 1 - u bounds its logarithm.
TLM_EVERYWHERE double GumbelBound(uint32_t word) {
  const double rest = (static_cast<double>(~word) + 0.5) * 0x1p-32;
  const int exponent = static_cast<int>(DoubleBits(rest) >> 52) - 1023;
  return exponent * -0x1.62e42fefa39f0p-1 + 1e-9;
}
// An upper bound of GumbelBound for all words.
inline constexpr double kMaxGumbel = 22.9;

// --- Order. ---

// Rises with the logit, which must not be NaN; equal for both zeros.
TLM_EVERYWHERE uint32_t OrderedBits(float logit) {
  const uint32_t bits = logit == 0.0f ? 0u : __builtin_bit_cast(uint32_t, logit);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
// The inverse of OrderedBits; zero for both zeros.
TLM_EVERYWHERE float LogitOfOrderedBits(uint32_t ordered) {
  return __builtin_bit_cast(float, (ordered & 0x80000000u) != 0 ? ordered ^ 0x80000000u : ~ordered);
}

}  // namespace tlm

#endif  // TLM_MODEL_SAMPLING_SAMPLING_MATH_H_
