// The input and the result of one forward pass, as plain data.
#ifndef TLM_MODEL_OPS_BATCH_H_
#define TLM_MODEL_OPS_BATCH_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "model/sampling/sampling_job.h"

namespace tlm {

// The largest batch that a model is built for; workspaces are sized once for it.
struct BatchLimits {
  int64_t max_tokens = 0;       // tokens of one batch
  int64_t max_sequences = 0;    // sequences of one batch
  int64_t max_logits_rows = 0;  // logits rows of one batch
  int64_t max_context = 0;      // positions of a sequence; at most the model's context_length
  // Tokens sampled in one batch after draft tokens, in addition to one for each sequence.
  int64_t max_draft_rows = 0;

  int64_t max_jobs() const { return max_sequences + max_draft_rows; }
};

// A placeholder in Batch::token_ids for a token that is not known yet: the result of job `job` of
// the previously launched batch.
constexpr int32_t PendingToken(int64_t job) { return static_cast<int32_t>(-1 - job); }

// The concatenated tokens of several sequences. Tokens of one sequence are consecutive and in the
// order of their positions; the cache already holds every earlier position of that sequence.
struct Batch {
  std::vector<int32_t> token_ids;     // [tokens]; an id, or PendingToken()
  std::vector<int32_t> positions;     // [tokens], absolute
  std::vector<int32_t> sequence_of;   // [tokens], row of block_tables, never decreasing
  std::vector<int32_t> block_tables;  // [sequences, max_blocks] ids; entries past a sequence's
                                      // blocks are 0 and never read
  int64_t sequences = 0;
  int64_t max_blocks = 0;
  std::vector<int32_t> logits_rows;  // [rows]: indices of the tokens whose logits are computed
  std::vector<SamplingJob> jobs;     // tokens to sample from those logits
  std::vector<int32_t> host_rows;    // indices into logits_rows, ascending: copied to the host

  int64_t tokens() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t rows() const { return static_cast<int64_t>(logits_rows.size()); }
  void Clear() {
    token_ids.clear();
    positions.clear();
    sequence_of.clear();
    block_tables.clear();
    logits_rows.clear();
    jobs.clear();
    host_rows.clear();
    sequences = max_blocks = 0;
  }
};

struct BatchResult {
  // [host_rows, vocab_size] row-major in host memory, until the next batch is launched.
  std::span<const float> logits;
  // One per Batch::jobs, with Sampler's errors: a failed job ends only its own sequence.
  std::vector<absl::StatusOr<SampledToken>> tokens;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_BATCH_H_
