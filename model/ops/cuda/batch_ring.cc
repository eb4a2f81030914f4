#include "model/ops/cuda/batch_ring.h"

#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/cuda_status.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<BatchRing>> BatchRing::Create(CudaDevice& device,
                                                             const RingShape& shape) {
  std::unique_ptr<BatchRing> ring(new BatchRing(device, shape));
  TLM_RETURN_IF_ERROR(ring->Open());
  return ring;
}

BatchRing::BatchRing(CudaDevice& device, const RingShape& shape)
    : device_(device), shape_(shape), layout_(shape) {}

absl::Status BatchRing::Open() {
  TLM_ASSIGN_OR_RETURN(device_memory_,
                       device_.Allocate(layout_.device_bytes(), MemoryPurpose::kActivations));
  TLM_ASSIGN_OR_RETURN(host_memory_, device_.AllocatePinned(layout_.host_bytes()));
  std::byte* host = host_memory_.as<std::byte>();
  for (Slot& slot : slots_) {
    slot.upload = host;
    slot.results = slot.upload + layout_.upload_bytes();
    slot.logits = reinterpret_cast<float*>(slot.results + layout_.download_bytes());
    host += layout_.host_bytes() / kSlots;
    TLM_RETURN_IF_ERROR(device_.Check(cudaEventCreateWithFlags(&slot.done, cudaEventDisableTiming),
                                      "cudaEventCreateWithFlags"));
  }
  return device_.Check(
      cudaMemsetAsync(sampled_tokens(), 0, layout_.download_bytes(), device_.compute_stream()),
      "cudaMemsetAsync");
}

BatchRing::~BatchRing() {
  // Copies may be on their way into the memory that is about to go.
  if (device_.MakeCurrent().ok()) cudaStreamSynchronize(device_.compute_stream());
  for (const Slot& slot : slots_) {
    if (slot.done != nullptr) cudaEventDestroy(slot.done);
  }
}

absl::Status BatchRing::Begin() {
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  if (begun_) {
    // Its upload may still be under way.
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaStreamSynchronize(device_.compute_stream()), "cudaStreamSynchronize"));
    begun_ = false;
    --in_flight_;
  }
  TLM_CHECK(in_flight_ < kSlots);
  begun_ = true;
  ++in_flight_;
  staged_.fill(0);
  return absl::OkStatus();
}

std::span<std::byte> BatchRing::host(RingSection section) {
  TLM_CHECK(begun_);
  return {slots_[next_].upload + layout_.offset(section), layout_.capacity(section)};
}

void BatchRing::Stage(const Batch& batch, const PaddedShape& padded) {
  WritePadded(batch, padded,
              {.token_ids = host_as<int32_t>(RingSection::kTokenIds),
               .positions = host_as<int32_t>(RingSection::kPositions),
               .table_of = host_as<int32_t>(RingSection::kTableOf),
               .logits_rows = host_as<int32_t>(RingSection::kLogitsRows),
               .block_tables = host_as<int32_t>(RingSection::kBlockTables)});
  const auto staged = [this](RingSection section, int64_t integers) {
    staged_[static_cast<size_t>(section)] = static_cast<size_t>(integers) * sizeof(int32_t);
  };
  staged(RingSection::kTokenIds, padded.tokens);
  staged(RingSection::kPositions, padded.tokens);
  staged(RingSection::kTableOf, padded.tokens);
  staged(RingSection::kLogitsRows, padded.rows);
  staged(RingSection::kBlockTables, static_cast<int64_t>(batch.block_tables.size()));
}

absl::Status BatchRing::Upload(size_t attention_bytes, size_t job_bytes) {
  TLM_CHECK(begun_);
  staged_[static_cast<size_t>(RingSection::kAttentionWork)] = attention_bytes;
  staged_[static_cast<size_t>(RingSection::kJobs)] = job_bytes;
  std::byte* const to = device_memory_.as<std::byte>();
  for (const RingCopy& copy : layout_.Copies(staged_)) {
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaMemcpyAsync(to + copy.offset, slots_[next_].upload + copy.offset,
                                      copy.bytes, cudaMemcpyHostToDevice, device_.compute_stream()),
                      "cudaMemcpyAsync"));
  }
  return absl::OkStatus();
}

absl::Status BatchRing::Download(int64_t result_bytes, const float* logits, int64_t logits_stride,
                                 std::span<const int32_t> host_rows) {
  TLM_CHECK(begun_);
  Slot& slot = slots_[next_];
  slot.sampled = result_bytes >= 0;
  slot.result_bytes = slot.sampled ? static_cast<size_t>(result_bytes) : 0;
  slot.host_rows = static_cast<int64_t>(host_rows.size());
  TLM_CHECK(slot.result_bytes <= shape_.result_bytes && slot.host_rows <= shape_.max_host_rows);
  if (slot.sampled) {
    const size_t bytes = layout_.job_results_offset() + slot.result_bytes;
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaMemcpyAsync(slot.results, sampled_tokens(), bytes, cudaMemcpyDeviceToHost,
                                      device_.compute_stream()),
                      "cudaMemcpyAsync"));
  }
  TLM_RETURN_IF_ERROR(DownloadLogits(logits, logits_stride, host_rows));
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaEventRecord(slot.done, device_.compute_stream()), "cudaEventRecord"));
  begun_ = false;
  next_ = (next_ + 1) % kSlots;
  return absl::OkStatus();
}

absl::Status BatchRing::DownloadLogits(const float* logits, int64_t stride,
                                       std::span<const int32_t> host_rows) {
  const size_t row_bytes = static_cast<size_t>(shape_.vocab_size) * sizeof(float);
  float* to = slots_[next_].logits;
  for (const RowRun& run : RunsOfRows(host_rows)) {
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaMemcpy2DAsync(to, row_bytes, logits + run.first * stride,
                                        static_cast<size_t>(stride) * sizeof(float), row_bytes,
                                        static_cast<size_t>(run.rows), cudaMemcpyDeviceToHost,
                                        device_.compute_stream()),
                      "cudaMemcpy2DAsync"));
    to += run.rows * shape_.vocab_size;
  }
  return absl::OkStatus();
}

absl::StatusOr<RingResult> BatchRing::Await() {
  TLM_CHECK(in_flight_ > (begun_ ? 1 : 0));
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  const Slot& slot = slots_[(next_ + kSlots - (in_flight_ - (begun_ ? 1 : 0))) % kSlots];
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventSynchronize(slot.done), "cudaEventSynchronize"));
  --in_flight_;
  return RingResult{
      .sampled_tokens = {reinterpret_cast<const int32_t*>(slot.results),
                         slot.sampled ? static_cast<size_t>(shape_.max_jobs) : 0},
      .results = {slot.results + layout_.job_results_offset(), slot.result_bytes},
      .logits = {slot.logits, static_cast<size_t>(slot.host_rows * shape_.vocab_size)}};
}

}  // namespace tlm
