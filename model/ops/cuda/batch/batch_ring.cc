#include "model/ops/cuda/batch/batch_ring.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/device/cuda_status.h"

namespace tlm {
namespace {

// The least number of rows of logits that a slot allocates memory for.
constexpr int64_t kMinLogitsRows = 8;

}  // namespace

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
                       device_.Allocate(layout_.bytes(), MemoryPurpose::kActivations));
  TLM_ASSIGN_OR_RETURN(host_memory_, device_.AllocatePinned(layout_.bytes()));
  TLM_RETURN_IF_ERROR(
      device_.Check(cudaStreamCreateWithFlags(&results_stream_, cudaStreamNonBlocking),
                    "cudaStreamCreateWithFlags"));
  for (int slot = 0; slot < kSlots; ++slot) {
    const size_t begin = static_cast<size_t>(slot) * layout_.slot_bytes();
    Slot& opened = slots_[static_cast<size_t>(slot)];
    opened.on_device = device_memory_.as<std::byte>() + begin;
    opened.upload = host_memory_.as<std::byte>() + begin;
    opened.results = opened.upload + layout_.upload_bytes();
    TLM_RETURN_IF_ERROR(OpenSlot(opened));
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaMemsetAsync(sampled_tokens(slot), 0, layout_.download_bytes(),
                                      device_.compute_stream()),
                      "cudaMemsetAsync"));
  }
  return absl::OkStatus();
}

absl::Status BatchRing::OpenSlot(Slot& slot) {
  for (cudaEvent_t* const event : {&slot.uploaded, &slot.computed, &slot.done}) {
    TLM_RETURN_IF_ERROR(device_.Check(cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                                      "cudaEventCreateWithFlags"));
  }
  return absl::OkStatus();
}

BatchRing::~BatchRing() {
  // Copies to the memory that is about to be freed may be in flight, even after some faults.
  device_.MakeCurrent().IgnoreError();
  cudaStreamSynchronize(device_.copy_stream());
  cudaStreamSynchronize(device_.compute_stream());
  if (results_stream_ != nullptr) cudaStreamSynchronize(results_stream_);
  for (const Slot& slot : slots_) {
    for (const cudaEvent_t event : {slot.uploaded, slot.computed, slot.done}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }
  if (results_stream_ != nullptr) cudaStreamDestroy(results_stream_);
}

absl::Status BatchRing::Record(cudaEvent_t event, cudaStream_t stream) {
  return device_.Check(cudaEventRecord(event, stream), "cudaEventRecord");
}

absl::Status BatchRing::Follow(cudaStream_t stream, cudaEvent_t event) {
  return device_.Check(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

absl::Status BatchRing::Begin() {
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  if (begun_) {
    // Its upload, and kernels that read it, may still be in flight.
    TLM_RETURN_IF_ERROR(device_.Synchronize());
    begun_ = false;
    --in_flight_;
  }
  TLM_CHECK(in_flight_ < kSlots);
  begun_ = true;
  ++in_flight_;
  return absl::OkStatus();
}

std::span<std::byte> BatchRing::host() const {
  TLM_CHECK(begun_);
  return {slots_[static_cast<size_t>(next_)].upload, layout_.upload_bytes()};
}

absl::Status BatchRing::Upload(size_t bytes) {
  TLM_CHECK(begun_ && bytes <= layout_.upload_bytes());
  const Slot& slot = slots_[static_cast<size_t>(next_)];
  TLM_RETURN_IF_ERROR(device_.Check(cudaMemcpyAsync(slot.on_device, slot.upload, bytes,
                                                    cudaMemcpyHostToDevice, device_.copy_stream()),
                                    "cudaMemcpyAsync"));
  TLM_RETURN_IF_ERROR(Record(slot.uploaded, device_.copy_stream()));
  return Follow(device_.compute_stream(), slot.uploaded);
}

absl::Status BatchRing::Download(int64_t result_bytes, const float* logits, int64_t logits_stride,
                                 std::span<const int32_t> host_rows) {
  TLM_CHECK(begun_);
  Slot& slot = slots_[static_cast<size_t>(next_)];
  slot.sampled = result_bytes >= 0;
  slot.result_bytes = slot.sampled ? static_cast<size_t>(result_bytes) : 0;
  slot.host_rows = static_cast<int64_t>(host_rows.size());
  TLM_CHECK(slot.result_bytes <= shape_.result_bytes && slot.host_rows <= shape_.max_host_rows);
  TLM_RETURN_IF_ERROR(TakeLogits(slot, slot.host_rows));
  TLM_RETURN_IF_ERROR(DownloadLogits(logits, logits_stride, host_rows));
  TLM_RETURN_IF_ERROR(Record(slot.computed, device_.compute_stream()));
  TLM_RETURN_IF_ERROR(Follow(results_stream_, slot.computed));
  if (slot.sampled) {
    const size_t bytes = layout_.job_results_offset() + slot.result_bytes;
    TLM_RETURN_IF_ERROR(device_.Check(cudaMemcpyAsync(slot.results, sampled_tokens(next_), bytes,
                                                      cudaMemcpyDeviceToHost, results_stream_),
                                      "cudaMemcpyAsync"));
  }
  TLM_RETURN_IF_ERROR(Record(slot.done, results_stream_));
  begun_ = false;
  next_ = (next_ + 1) % kSlots;
  return absl::OkStatus();
}

// Memory for logits is allocated at the first request for logits: generation alone never requests
// them, and a batch of full logits is large. If no more memory can be pinned, pageable memory is
// used, and copies are slower.
absl::Status BatchRing::TakeLogits(Slot& slot, int64_t rows) {
  const size_t row_bytes = static_cast<size_t>(shape_.vocab_size) * sizeof(float);
  if (static_cast<size_t>(rows) * row_bytes <= slot.logits.bytes()) return absl::OkStatus();
  const auto more = std::bit_ceil(static_cast<uint64_t>(std::max(rows, kMinLogitsRows)));
  const auto taken = static_cast<size_t>(
      std::max(rows, std::min(static_cast<int64_t>(more), shape_.max_host_rows)));
  slot.logits = Buffer();
  absl::StatusOr<Buffer> pinned = device_.AllocatePinned(taken * row_bytes);
  if (!device_.fault().ok()) return device_.fault();
  slot.logits = pinned.ok() ? *std::move(pinned)
                            : Buffer(::operator new(taken* row_bytes), taken * row_bytes,
                                     [](void* memory, size_t) { ::operator delete(memory); });
  return absl::OkStatus();
}

// On the compute stream, because the next batch overwrites the logits.
absl::Status BatchRing::DownloadLogits(const float* logits, int64_t stride,
                                       std::span<const int32_t> host_rows) {
  const size_t row_bytes = static_cast<size_t>(shape_.vocab_size) * sizeof(float);
  auto* to = slots_[static_cast<size_t>(next_)].logits.as<float>();
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
  const int oldest = (next_ + kSlots - (in_flight_ - (begun_ ? 1 : 0))) % kSlots;
  const Slot& slot = slots_[static_cast<size_t>(oldest)];
  TLM_RETURN_IF_ERROR(device_.Check(cudaEventSynchronize(slot.done), "cudaEventSynchronize"));
  --in_flight_;
  return RingResult{
      .sampled_tokens = {reinterpret_cast<const int32_t*>(slot.results),
                         slot.sampled ? static_cast<size_t>(shape_.max_jobs) : 0},
      .results = {slot.results + layout_.job_results_offset(), slot.result_bytes},
      .logits = {slot.logits.as<float>(), static_cast<size_t>(slot.host_rows * shape_.vocab_size)}};
}

}  // namespace tlm
