// How draws lie in memory on their way to the device and their outcomes on the way back: plain data
// that the host packs (draw_table.h) and the kernels of sample.h read.
//
// A table:     DrawTableHeader | DrawRecord[draws] | list words
// Outcomes:    DrawOutcome[draws] | TopToken[draws][kMaxTopTokens], the latter where asked for
#ifndef TLM_MODEL_OPS_CUDA_KERNELS_DRAW_RECORD_H_
#define TLM_MODEL_OPS_CUDA_KERNELS_DRAW_RECORD_H_

#include <cstdint>

namespace tlm {

// Most likely tokens a draw may tell of; more are left to the host.
inline constexpr uint32_t kMaxTopTokens = 32;

struct DrawTableHeader {
  uint32_t draws = 0;
  // Which of two arrays receives the drawn tokens; the other one holds those of the batch before.
  uint32_t parity = 0;
  uint32_t unused[2] = {};
};

enum class DrawKind : uint32_t {
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

inline constexpr int32_t kNoPendingDraw = -1;

struct DrawRecord {
  DrawKind kind = DrawKind::kHost;
  int32_t row = 0;  // of the logits
  // DrawKey and seed: what the noise depends on.
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
  // A draw of the batch before whose token counts as one more output; or kNoPendingDraw.
  int32_t pending_draw = kNoPendingDraw;
  uint32_t adjusts = 0;  // 1: AdjustLogits would change something
  uint32_t penalises = 0;
  WordRange bias;     // (id, bits of the bias) pairs, ids ascending
  WordRange allowed;  // ids, ascending; empty: all
  WordRange banned;   // ids, ascending
  // Instead of the two: bit id % 32 of word id / 32 is set where the token is removed.
  WordRange removed;
  WordRange history;  // (id, times in the output * 2 + in the prompt) pairs, any order
  // What is told of the drawn token.
  uint32_t wants_logprob = 0;
  uint32_t processed = 0;
  uint32_t top = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(DrawTableHeader) % 8 == 0 && sizeof(DrawRecord) % 8 == 0);

enum class DrawStatus : uint32_t {
  kOk,
  kNotADistribution,  // logit `detail_bits` of token `id` is NaN or +infinity
  kAllExcluded,       // all logits are -infinity
  kNoneLeft,          // all that the model gives a chance were removed
};

struct DrawOutcome {
  DrawStatus status = DrawStatus::kOk;
  int32_t id = 0;
  uint32_t detail_bits = 0;
  float logprob = 0.0f;  // with rank: where asked for
  uint32_t rank = 0;
  uint32_t unused[3] = {};
};

// Place i of a draw's list is rank i + 1.
struct TopToken {
  int32_t id = 0;
  float logprob = 0.0f;
};
static_assert(sizeof(DrawOutcome) % sizeof(TopToken) == 0);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_KERNELS_DRAW_RECORD_H_
