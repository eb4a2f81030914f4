// How what a batch carries to the device is laid out: pure arithmetic.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_RING_LAYOUT_H_
#define TLM_MODEL_OPS_CUDA_BATCH_RING_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/batch.h"

namespace tlm {

// What a batch uploads; each section has a place of its own that never moves.
enum class RingSection {
  kTokenIds,       // int32 [tokens]
  kPositions,      // int32 [tokens]
  kTableOf,        // int32 [tokens]: where the sequence's row of the block tables begins
  kLogitsRows,     // int32 [rows]
  kAttentionWork,  // of the attention planner
  kBlockTables,    // int32 [sequences, max_blocks]
  kJobs,           // of the job table
};
inline constexpr int kRingSections = 7;
// Batches on their way at a time.
inline constexpr int kRingSlots = 2;

// The largest batch, padding included.
struct RingShape {
  int64_t max_tokens = 0;
  int64_t max_rows = 0;       // of logits
  int64_t max_sequences = 0;  // rows of block tables
  int64_t max_blocks = 0;     // of a sequence
  int64_t max_jobs = 0;
  int64_t max_host_rows = 0;  // of logits that go to the host
  int64_t vocab_size = 0;
  size_t attention_bytes = 0;  // of kAttentionWork
  size_t job_bytes = 0;        // of kJobs
  size_t result_bytes = 0;     // that the jobs leave for the host beside their tokens
};

// A stretch of a slot that is copied at once.
struct RingCopy {
  size_t offset = 0;
  size_t bytes = 0;
  bool operator==(const RingCopy&) const = default;
};

// Offsets in bytes, multiples of 256. A value type.
class RingLayout {
 public:
  // Every part of `shape` is >= 0. Sizes that do not fit a size_t become the largest one, which no
  // allocation grants.
  explicit RingLayout(const RingShape& shape);

  size_t offset(RingSection section) const { return offset_[static_cast<size_t>(section)]; }
  size_t capacity(RingSection section) const { return capacity_[static_cast<size_t>(section)]; }
  size_t upload_bytes() const { return upload_bytes_; }

  // Results: the tokens sampled, int32 [max_jobs], then result_bytes of the job table's own.
  size_t results_offset() const { return results_offset_; }          // in the device's memory
  size_t job_results_offset() const { return job_results_offset_; }  // in the results
  size_t download_bytes() const { return download_bytes_; }
  size_t logits_bytes() const { return logits_bytes_; }

  size_t device_bytes() const { return device_bytes_; }  // upload and results, once
  size_t host_bytes() const { return host_bytes_; }      // and logits, for every slot

  // The copies that bring the first `used` bytes of every section across: as few as do not carry
  // more than some 100 KB of unneeded bytes each.
  std::vector<RingCopy> Copies(const std::array<size_t, kRingSections>& used) const;

 private:
  std::array<size_t, kRingSections> offset_{};
  std::array<size_t, kRingSections> capacity_{};
  size_t upload_bytes_ = 0;
  size_t results_offset_ = 0;
  size_t job_results_offset_ = 0;
  size_t download_bytes_ = 0;
  size_t logits_bytes_ = 0;
  size_t device_bytes_ = 0;
  size_t host_bytes_ = 0;
};

// A batch's shape as the kernels see it: at least as large as the batch itself.
struct PaddedShape {
  int64_t tokens = 0;
  int64_t rows = 0;  // of logits
};

// Writes a batch's arrays, padded, each to the start of its section. Padding tokens have id 0,
// position -1 and the first sequence; padding rows point at token 0. Spans are at least as long as
// the padded arrays.
struct BatchArrays {
  std::span<int32_t> token_ids;
  std::span<int32_t> positions;
  std::span<int32_t> table_of;
  std::span<int32_t> logits_rows;
  std::span<int32_t> block_tables;
};
void WritePadded(const Batch& batch, const PaddedShape& padded, const BatchArrays& out);

// Consecutive stretches of rising row numbers: {0, 1, 2, 5} is {0, 3}, {5, 1}.
struct RowRun {
  int64_t first = 0;
  int64_t rows = 0;
  bool operator==(const RowRun&) const = default;
};
std::vector<RowRun> RunsOfRows(std::span<const int32_t> rows);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_RING_LAYOUT_H_
