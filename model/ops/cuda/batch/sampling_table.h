// Packs a batch's sampling jobs into one table to upload, and unpacks the results into tokens.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_SAMPLING_TABLE_H_
#define TLM_MODEL_OPS_CUDA_BATCH_SAMPLING_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/sampling/sampling_errors.h"

namespace tlm {

// Bytes of pinned host memory, and again of device memory, for any batch within the limits.
struct SamplingTableBytes {
  size_t table = 0;
  size_t outcomes = 0;
};
SamplingTableBytes MaxSamplingTableBytes(const BatchLimits& limits, int64_t vocab_size);

// Whether a job is too large for the device, because its lists exceed 16,384 words or it reports
// more than kMaxTopTokens. A list takes: 2 words per biased token; 1 per allowed or banned token,
// or 1 per 32 tokens of the vocabulary, whichever is less (always the latter with a mask); with
// penalties 2 per different token of the history and 2 per token of the draft. For such a job the
// row of logits is copied to the host for Sampler, and the device reports token 0. So no batch may
// name it in PendingToken: the results of its batch are awaited before the next one is launched.
bool NeedsHost(const SamplingJob& job, int64_t vocab_size);

// The result of packing a batch's jobs.
struct PackedJobs {
  size_t table_bytes = 0;    // bytes of the table, to upload
  size_t outcome_bytes = 0;  // to download
  bool noise = false;        // SampleStages of these jobs
  bool finish = false;
  std::vector<int32_t> host;  // jobs that NeedsHost, ascending
  std::vector<int32_t> late;  // others whose mask was not ready: nothing is sampled, MaskIsLate()
  // [jobs]: for messages, when the objects that the jobs point at no longer exist.
  std::vector<RemovalCounts> removals;
};

// Packs the tables of consecutive batches. They must run on the device in the order in which they
// were packed. Thread-compatible.
class SamplingTable {
 public:
  explicit SamplingTable(int64_t vocab_size) : vocab_size_(vocab_size) {}

  // Waits for masks. `table` is 8-byte aligned and has MaxSamplingTableBytes(). If the token of a
  // penalised job's row is a PendingToken, that token counts as one more token of the output,
  // although the history lacks it. *packed is overwritten; its memory is reused.
  void Pack(const Batch& batch, std::span<std::byte> table, PackedJobs* packed);

 private:
  int64_t vocab_size_;
  uint32_t parity_ = 0;
  // Scratch.
  std::vector<int32_t> banned_;
  std::vector<std::pair<int32_t, TokenHistory::Seen>> drafted_;
};

// Returns one result per job of Batch::jobs, with Sampler's errors. `packed` is Pack's result for
// the batch. Of the batch itself only the jobs' values are read, not the objects that they point
// at. `outcomes` has outcome_bytes, 8-byte aligned. The caller overwrites the results of
// PackedJobs::host with Sampler's result for the job's row.
std::vector<absl::StatusOr<SampledToken>> UnpackJobs(const Batch& batch, const PackedJobs& packed,
                                                     int64_t vocab_size,
                                                     std::span<const std::byte> outcomes);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_SAMPLING_TABLE_H_
