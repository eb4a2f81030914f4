// A batch's sampling jobs as one block of bytes to upload, and what comes back as tokens.
#ifndef TLM_MODEL_OPS_CUDA_SAMPLING_TABLE_H_
#define TLM_MODEL_OPS_CUDA_SAMPLING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/sampling/sampling_errors.h"

namespace tlm {

// Of pinned host memory and of device memory alike; for any batch within the limits.
struct SamplingTableBytes {
  size_t table = 0;
  size_t outcomes = 0;
};
SamplingTableBytes MaxSamplingTableBytes(const BatchLimits& limits, int64_t vocab_size);

// Whether a job's lists or the number of tokens it reports are too many for the device: over
// 16,384 words of lists (2 a biased token, 1 an allowed or banned one or a 32nd of the vocabulary,
// whichever is less, the latter with a mask, and with penalties 2 a different token of the history
// and 2 a token of the draft) or over kMaxTopTokens. Its row of logits is then brought to the host
// for Sampler and the device gives token 0 for it, so that no batch may name it in PendingToken:
// the results of a batch with such a job are awaited before the next one is launched.
bool NeedsHost(const SamplingJob& job, int64_t vocab_size);

// What became of a batch's jobs when packed.
struct PackedJobs {
  size_t table_bytes = 0;    // of the table, to be uploaded
  size_t outcome_bytes = 0;  // to be brought back
  bool noise = false;        // SampleStages of these jobs
  bool finish = false;
  std::vector<int32_t> host;  // jobs that NeedsHost, ascending
  std::vector<int32_t> late;  // others whose mask is not known: nothing is sampled, MaskIsLate()
  // [jobs]: for messages, when what the jobs point at is no more.
  std::vector<RemovalCounts> removals;
};

// Packs the tables of consecutive batches; each is to run on the device in the order they were
// packed. Thread-compatible.
class SamplingTable {
 public:
  explicit SamplingTable(int64_t vocab_size) : vocab_size_(vocab_size) {}

  // Awaits masks. `table` is 8-byte aligned and of MaxSamplingTableBytes(). A penalised job whose
  // row's token is a PendingToken counts that token too, as one more in the output, though its
  // history lacks it. *packed is overwritten; its memory is used again.
  void Pack(const Batch& batch, std::span<std::byte> table, PackedJobs* packed);

 private:
  int64_t vocab_size_;
  uint32_t parity_ = 0;
  // Scratch.
  std::vector<int32_t> banned_;
  std::vector<std::pair<int32_t, TokenHistory::Seen>> drafted_;
};

// By Batch::jobs, with Sampler's errors. `packed` is what Pack made of the batch; of the batch
// itself only the jobs' values are read, nothing they point at. `outcomes` are outcome_bytes,
// 8-byte aligned. What stands in the places of PackedJobs::host is to be overwritten with
// Sampler's result for the job's row.
std::vector<absl::StatusOr<SampledToken>> UnpackJobs(const Batch& batch, const PackedJobs& packed,
                                                     int64_t vocab_size,
                                                     std::span<const std::byte> outcomes);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_SAMPLING_TABLE_H_
