// The memory layout of sampling jobs and their results: plain data that the host packs
// (sampling_table.h) and the kernels of sample.h read.
//
// A table:     SamplingTableHeader | SamplingRecord[jobs] | list words
// Outcomes:    SamplingOutcome[jobs] | TopToken[jobs][kMaxTopTokens], the latter only if asked for
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLING_RECORD_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLING_RECORD_H_

#include <cstdint>

namespace tlm {

// The limit for the top tokens that a job may report on the device; with more it is a host job.
inline constexpr uint32_t kMaxTopTokens = 32;

struct SamplingTableHeader {
  uint32_t jobs = 0;
  // Which of two arrays receives the sampled tokens; the other one holds the tokens of the previous
  // batch.
  uint32_t parity = 0;
  uint32_t unused[2] = {};
};

enum class SamplingKind : uint32_t {
  kHost,       // a host job: nothing to do on the device
  kGreedy,     // the most likely token
  kPlain,      // samples from all tokens
  kTruncated,  // with top_k, typical_p, top_p or min_p
};

// A range of 4-byte words in the table, counted from its beginning.
struct WordRange {
  uint32_t begin = 0;
  uint32_t words = 0;
};

inline constexpr int32_t kNoPendingJob = -1;

struct SamplingRecord {
  SamplingKind kind = SamplingKind::kHost;
  int32_t row = 0;  // row of the logits
  // SampleKey and seed, which determine the noise.
  uint64_t seed = 0;
  uint64_t position = 0;
  uint32_t output_index = 0;
  uint32_t top_k = 0;  // 0: no limit
  double inverse_temperature = 0.0;
  double top_p = 1.0;
  double typical_p = 1.0;
  double min_p_floor = 0.0;  // log(min_p); -infinity: no floor
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  // The job of the previous batch whose token counts as one more output token; or kNoPendingJob.
  int32_t pending_job = kNoPendingJob;
  uint32_t adjusts = 0;  // 1: AdjustLogits would change something
  uint32_t penalises = 0;
  WordRange bias;     // (id, bits of the bias) pairs, ids ascending
  WordRange allowed;  // ids, ascending; empty: all
  WordRange banned;   // ids, ascending
  // Instead of `allowed` and `banned`: bit id % 32 of word id / 32 is set if the token is removed.
  WordRange removed;
  // (id, count in the output * 2 + whether in the prompt) pairs, ids in any order; jobs may share
  // them.
  WordRange history;
  WordRange draft;  // the same pairs, ids ascending; they replace `history` for these ids
  // What is reported about the sampled token.
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
  kNoneLeft,          // all tokens with a finite logit were removed
};

struct SamplingOutcome {
  SamplingStatus status = SamplingStatus::kOk;
  int32_t id = 0;
  uint32_t detail_bits = 0;
  float logprob = 0.0f;  // logprob and rank: only if asked for
  uint32_t rank = 0;
  uint32_t unused[3] = {};
};

// Entry i of a job's list has rank i + 1.
struct TopToken {
  int32_t id = 0;
  float logprob = 0.0f;
};
static_assert(sizeof(SamplingOutcome) % sizeof(TopToken) == 0);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_SAMPLING_SAMPLING_RECORD_H_
