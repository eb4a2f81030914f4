// How jobs lie in memory on their way to the device and their outcomes on the way back: plain data
// that the host packs (sampling_table.h) and the kernels of sample.h read.
//
// A table:     SamplingTableHeader | SamplingRecord[jobs] | list words
// Outcomes:    SamplingOutcome[jobs] | TopToken[jobs][kMaxTopTokens], the latter where asked for
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_RECORD_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_RECORD_H_

#include <cstdint>

namespace tlm {

// The most top tokens a job may report on the device; jobs with more are left to the host.
inline constexpr uint32_t kMaxTopTokens = 32;

struct SamplingTableHeader {
  uint32_t jobs = 0;
  // Which of two arrays receives the sampled tokens; the other one holds those of the batch before.
  uint32_t parity = 0;
  uint32_t unused[2] = {};
};

enum class SamplingKind : uint32_t {
  kHost,       // nothing to do on the device
  kGreedy,     // the most likely token
  kPlain,      // any token by its probability
  kTruncated,  // top_k, typical_p, top_p or min_p first
};

// A run of words in the table: the first one's index, counted from the table's beginning in words
// of 4 bytes.
struct WordRange {
  uint32_t begin = 0;
  uint32_t words = 0;
};

inline constexpr int32_t kNoPendingJob = -1;

struct SamplingRecord {
  SamplingKind kind = SamplingKind::kHost;
  int32_t row = 0;  // of the logits
  // SampleKey and seed: what the noise depends on.
  uint64_t seed = 0;
  uint64_t position = 0;
  uint32_t output_index = 0;
  uint32_t top_k = 0;  // 0: all
  double inverse_temperature = 0.0;
  double top_p = 1.0;
  double typical_p = 1.0;
  double min_p_floor = 0.0;  // log(min_p); -infinity: none
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  // A job of the batch before whose token counts as one more output; or kNoPendingJob.
  int32_t pending_job = kNoPendingJob;
  uint32_t adjusts = 0;  // 1: AdjustLogits would change something
  uint32_t penalises = 0;
  WordRange bias;     // (id, bits of the bias) pairs, ids ascending
  WordRange allowed;  // ids, ascending; empty: all
  WordRange banned;   // ids, ascending
  // Instead of the two: bit id % 32 of word id / 32 is set where the token is removed.
  WordRange removed;
  // (id, times in the output * 2 + in the prompt) pairs, ids in any order; jobs may share them.
  WordRange history;
  WordRange draft;  // the same, ids ascending: instead of what `history` has for these ids
  // What is reported of the sampled token.
  uint32_t wants_logprob = 0;
  uint32_t processed = 0;
  uint32_t top = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(SamplingTableHeader) % 8 == 0 && sizeof(SamplingRecord) % 8 == 0);

enum class SamplingStatus : uint32_t {
  kOk,
  kNotADistribution,  // logit `detail_bits` of token `id` is NaN or +infinity
  kAllExcluded,       // all logits are -infinity
  kNoneLeft,          // all that the model gives a chance were removed
};

struct SamplingOutcome {
  SamplingStatus status = SamplingStatus::kOk;
  int32_t id = 0;
  uint32_t detail_bits = 0;
  float logprob = 0.0f;  // with rank: where asked for
  uint32_t rank = 0;
  uint32_t unused[3] = {};
};

// Place i of a job's list is rank i + 1.
struct TopToken {
  int32_t id = 0;
  float logprob = 0.0f;
};
static_assert(sizeof(SamplingOutcome) % sizeof(TopToken) == 0);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_RECORD_H_
