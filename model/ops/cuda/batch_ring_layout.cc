#include "model/ops/cuda/batch_ring_layout.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr size_t kAlignment = 256;
// Unneeded bytes whose transfer takes about as long as starting another copy.
constexpr size_t kWorthCarrying = size_t{128} << 10;
constexpr size_t kMost = std::numeric_limits<size_t>::max();

size_t Sum(size_t a, size_t b) { return a > kMost - b ? kMost : a + b; }
size_t Product(size_t a, size_t b) { return b != 0 && a > kMost / b ? kMost : a * b; }
size_t Product(int64_t a, int64_t b, size_t element) {
  TLM_CHECK(a >= 0 && b >= 0);
  return Product(Product(static_cast<size_t>(a), static_cast<size_t>(b)), element);
}
size_t Aligned(size_t bytes) {
  const size_t padded = Sum(bytes, kAlignment - 1);
  return padded == kMost ? kMost : padded / kAlignment * kAlignment;
}

}  // namespace

RingLayout::RingLayout(const RingShape& shape) {
  const auto set = [this](RingSection section, size_t bytes) {
    capacity_[static_cast<size_t>(section)] = bytes;
  };
  set(RingSection::kTokenIds, Product(shape.max_tokens, 1, sizeof(int32_t)));
  set(RingSection::kPositions, Product(shape.max_tokens, 1, sizeof(int32_t)));
  set(RingSection::kTableOf, Product(shape.max_tokens, 1, sizeof(int32_t)));
  set(RingSection::kLogitsRows, Product(shape.max_rows, 1, sizeof(int32_t)));
  set(RingSection::kAttentionWork, shape.attention_bytes);
  set(RingSection::kBlockTables, Product(shape.max_sequences, shape.max_blocks, sizeof(int32_t)));
  set(RingSection::kJobs, shape.job_bytes);
  for (size_t section = 0; section < kRingSections; ++section) {
    offset_[section] = upload_bytes_;
    upload_bytes_ = Sum(upload_bytes_, Aligned(capacity_[section]));
  }
  results_offset_ = upload_bytes_;
  job_results_offset_ = Aligned(Product(shape.max_jobs, 1, sizeof(int32_t)));
  download_bytes_ = Aligned(Sum(job_results_offset_, shape.result_bytes));
  logits_bytes_ = Aligned(Product(shape.max_host_rows, shape.vocab_size, sizeof(float)));
  device_bytes_ = Sum(upload_bytes_, download_bytes_);
  host_bytes_ = Product(Sum(device_bytes_, logits_bytes_), kRingSlots);
}

std::vector<RingCopy> RingLayout::Copies(const std::array<size_t, kRingSections>& used) const {
  std::vector<RingCopy> copies;
  for (size_t section = 0; section < kRingSections; ++section) {
    TLM_CHECK(used[section] <= capacity_[section]);
    if (used[section] == 0) continue;
    const size_t begin = offset_[section];
    const size_t end = begin + used[section];
    const size_t reached = copies.empty() ? 0 : copies.back().offset + copies.back().bytes;
    if (!copies.empty() && begin - reached <= kWorthCarrying) {
      copies.back().bytes = end - copies.back().offset;
    } else {
      copies.push_back({begin, used[section]});
    }
  }
  return copies;
}

void WritePadded(const Batch& batch, const PaddedShape& padded, const BatchArrays& out) {
  const auto write = [](const std::vector<int32_t>& from, int64_t size, int32_t padding,
                        std::span<int32_t> to) {
    TLM_CHECK(static_cast<int64_t>(from.size()) <= size && size <= static_cast<int64_t>(to.size()));
    const auto end = std::copy(from.begin(), from.end(), to.begin());
    std::fill(end, to.begin() + size, padding);
  };
  write(batch.token_ids, padded.tokens, 0, out.token_ids);
  write(batch.positions, padded.tokens, -1, out.positions);
  write(batch.logits_rows, padded.rows, 0, out.logits_rows);
  const auto tables = static_cast<int64_t>(batch.block_tables.size());
  write(batch.block_tables, tables, 0, out.block_tables);
  write(batch.sequence_of, padded.tokens, 0, out.table_of);
  for (int32_t& place : out.table_of.first(batch.sequence_of.size())) {
    place *= static_cast<int32_t>(batch.max_blocks);
  }
}

std::vector<RowRun> RunsOfRows(std::span<const int32_t> rows) {
  std::vector<RowRun> runs;
  for (const int32_t row : rows) {
    if (!runs.empty() && runs.back().first + runs.back().rows == row) {
      ++runs.back().rows;
    } else {
      runs.push_back({.first = row, .rows = 1});
    }
  }
  return runs;
}

}  // namespace tlm
