#include "model/ops/cuda/batch/batch_ring_layout.h"

#include <algorithm>
#include <limits>

#include "model/base/errors.h"

namespace tlm {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMax = std::numeric_limits<size_t>::max();
constexpr size_t kMaxUploaded = size_t{4} * std::numeric_limits<int32_t>::max();

size_t Sum(size_t a, size_t b) { return a > kMax - b ? kMax : a + b; }
size_t Product(size_t a, size_t b) { return b != 0 && a > kMax / b ? kMax : a * b; }
size_t Aligned(size_t bytes) {
  const size_t padded = Sum(bytes, kAlignment - 1);
  return padded == kMax ? kMax : padded / kAlignment * kAlignment;
}
// Bytes of an array of int32.
size_t ArrayBytes(int64_t rows, int64_t cols = 1) {
  TLM_CHECK(rows >= 0 && cols >= 0);
  return Product(Product(static_cast<size_t>(rows), static_cast<size_t>(cols)), sizeof(int32_t));
}

}  // namespace

UploadPlaces PlacesOf(const PaddedShape& padded, size_t attention_bytes) {
  const size_t tokens = Aligned(ArrayBytes(padded.tokens));
  UploadPlaces places;
  places.positions = tokens;
  places.table_of = Sum(places.positions, tokens);
  places.logits_rows = Sum(places.table_of, tokens);
  places.attention = Sum(places.logits_rows, Aligned(ArrayBytes(padded.rows)));
  places.jobs = Sum(places.attention, Aligned(attention_bytes));
  return places;
}

size_t UploadPlaces::BlockTables(size_t job_bytes) const { return Sum(jobs, Aligned(job_bytes)); }

RingLayout::RingLayout(const RingShape& shape) {
  const PaddedShape largest{.tokens = shape.max_tokens, .rows = shape.max_rows};
  const size_t tables = PlacesOf(largest, shape.attention_bytes).BlockTables(shape.job_bytes);
  upload_bytes_ = Sum(tables, Aligned(ArrayBytes(shape.max_sequences, shape.max_blocks)));
  if (upload_bytes_ > kMaxUploaded) upload_bytes_ = kMax;
  job_results_offset_ = Aligned(ArrayBytes(shape.max_jobs));
  download_bytes_ = Aligned(Sum(job_results_offset_, shape.result_bytes));
  slot_bytes_ = Sum(upload_bytes_, download_bytes_);
  bytes_ = Product(slot_bytes_, kRingSlots);
}

size_t WritePadded(const Batch& batch, const PaddedShape& padded, const UploadPlaces& places,
                   size_t job_bytes, std::span<std::byte> upload) {
  const auto write = [upload](const std::vector<int32_t>& from, int64_t size, int32_t padding,
                              size_t place) {
    TLM_CHECK(static_cast<int64_t>(from.size()) <= size);
    TLM_CHECK(place + ArrayBytes(size) <= upload.size());
    const std::span to{reinterpret_cast<int32_t*>(upload.data() + place),
                       static_cast<size_t>(size)};
    std::fill(std::copy(from.begin(), from.end(), to.begin()), to.end(), padding);
    return to;
  };
  write(batch.token_ids, padded.tokens, 0, places.token_ids);
  write(batch.positions, padded.tokens, -1, places.positions);
  write(batch.logits_rows, padded.rows, 0, places.logits_rows);
  const std::span table_of = write(batch.sequence_of, padded.tokens, 0, places.table_of);
  const size_t tables = places.BlockTables(job_bytes);
  for (int32_t& place : table_of) {
    place = static_cast<int32_t>(tables / sizeof(int32_t)) +
            place * static_cast<int32_t>(batch.max_blocks);
  }
  const auto entries = static_cast<int64_t>(batch.block_tables.size());
  write(batch.block_tables, entries, 0, tables);
  return tables + ArrayBytes(entries);
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
