// Memory layout of a batch's upload and of its results. Plain C++, no CUDA.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_BATCH_RING_LAYOUT_H_
#define TLM_MODEL_OPS_CUDA_BATCH_BATCH_RING_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/ops/batch.h"

namespace tlm {

// Batches in flight at a time.
inline constexpr int kRingSlots = 2;

// The largest batch, padding included.
struct RingShape {
  int64_t max_tokens = 0;
  int64_t max_rows = 0;       // rows of logits
  int64_t max_sequences = 0;  // rows of block tables
  int64_t max_blocks = 0;     // blocks of a sequence
  int64_t max_jobs = 0;
  int64_t max_host_rows = 0;  // rows of logits that are copied to the host
  int64_t vocab_size = 0;
  size_t attention_bytes = 0;  // bytes of the attention work list
  size_t job_bytes = 0;        // bytes of the job table
  size_t result_bytes = 0;     // bytes of the jobs' results, without their tokens
};

// The shape that kernels are launched for: at least as large as the batch itself.
struct PaddedShape {
  int64_t tokens = 0;
  int64_t rows = 0;  // rows of logits
};

// Byte offsets of the parts of a batch's upload, multiples of 64:
//
//   token_ids | positions | table_of | logits_rows | attention | jobs | block tables
//
// These are: int32 [tokens], three times, and [rows]; attention's work list; the job table; int32
// [sequences, max_blocks]. The offsets are the same for all batches of one padded shape, so a CUDA
// graph may hold them. Only the block tables have no fixed offset. Kernels get the beginning of the
// upload instead, and table_of counts from there: it is the index of the entry where the table row
// of a token's sequence begins.
struct UploadPlaces {
  size_t token_ids = 0;
  size_t positions = 0;
  size_t table_of = 0;
  size_t logits_rows = 0;
  size_t attention = 0;
  size_t jobs = 0;

  // The offset of the block tables, after a job table of `job_bytes`.
  size_t BlockTables(size_t job_bytes) const;
};
// `attention_bytes` is enough for any batch of that shape.
UploadPlaces PlacesOf(const PaddedShape& padded, size_t attention_bytes);

// Sizes in bytes, multiples of 64. A value type.
class RingLayout {
 public:
  // Every part of `shape` is >= 0. Sizes that do not fit a size_t, and uploads with more entries
  // than an int32 can index, become the largest size_t, which no allocation grants.
  explicit RingLayout(const RingShape& shape);

  size_t upload_bytes() const { return upload_bytes_; }
  // The results are the sampled tokens, int32 [max_jobs], then result_bytes from the job table.
  size_t job_results_offset() const { return job_results_offset_; }  // in the results
  size_t download_bytes() const { return download_bytes_; }

  size_t slot_bytes() const { return slot_bytes_; }  // upload and results
  // Bytes of all slots, on the device and again on the host.
  size_t bytes() const { return bytes_; }

 private:
  size_t upload_bytes_ = 0;
  size_t job_results_offset_ = 0;
  size_t download_bytes_ = 0;
  size_t slot_bytes_ = 0;
  size_t bytes_ = 0;
};

// Writes the batch's arrays, padded, to their offsets in `upload`; the job table takes `job_bytes`.
// Padding tokens have id 0, position -1 and the first row of the block tables; padding rows point
// at token 0. Returns the bytes of the upload; `upload` must have this size.
size_t WritePadded(const Batch& batch, const PaddedShape& padded, const UploadPlaces& places,
                   size_t job_bytes, std::span<std::byte> upload);

// Runs of consecutive row numbers; `rows` is ascending: {0, 1, 2, 5} is {0, 3}, {5, 1}.
struct RowRun {
  int64_t first = 0;
  int64_t rows = 0;
  bool operator==(const RowRun&) const = default;
};
std::vector<RowRun> RunsOfRows(std::span<const int32_t> rows);

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_BATCH_RING_LAYOUT_H_
