// Copies batches to the device and their results back, two batches at a time.
//
//            Begin, Stage, Upload          kernels          Download        Await
//   slot 0   pinned host memory  ->                    ->   pinned     ->   the caller
//                                    device memory
//   slot 1   pinned host memory  ->                    ->   pinned     ->   the caller
//
// Both slots share one place in device memory, so that recorded graphs find every batch at the same
// addresses. The stream runs copies and kernels in order: the next batch is copied after the
// kernels have read the previous one.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_RING_H_
#define TLM_MODEL_OPS_CUDA_BATCH_RING_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/cuda/batch_ring_layout.h"
#include "model/ops/cuda/cuda_device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// The results of one batch. Valid until the second Begin after the batch's own.
struct RingResult {
  std::span<const int32_t> sampled_tokens;  // [max_jobs]; empty without jobs
  std::span<const std::byte> results;       // as many bytes as Download asked for
  std::span<const float> logits;            // [host rows, vocab_size]
};

// Same threading as Device. Begin, Stage, Upload, Download once for each batch, in this order; then
// Await, oldest batch first, at the latest when kSlots batches are in flight. Statuses are those of
// CudaDevice::Check.
class BatchRing {
 public:
  static constexpr int kSlots = kRingSlots;

  static size_t DeviceBytes(const RingShape& shape) { return RingLayout(shape).device_bytes(); }
  // Takes DeviceBytes as kActivations and the layout's host bytes pinned; RESOURCE_EXHAUSTED as
  // Allocate.
  // `device` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<BatchRing>> Create(CudaDevice& device,
                                                           const RingShape& shape);
  ~BatchRing();
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;

  const RingLayout& layout() const { return layout_; }
  // Batches begun and not awaited.
  int in_flight() const { return in_flight_; }

  // Takes the next slot; fewer than kSlots batches are in flight. A batch that was begun and never
  // came to its Download is dropped.
  absl::Status Begin();
  // Memory of the begun batch's slot for a section, its capacity long.
  std::span<std::byte> host(RingSection section);
  template <typename T>
  std::span<T> host_as(RingSection section) {
    const std::span<std::byte> bytes = host(section);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // Fills the sections that hold the batch's own arrays; see WritePadded.
  void Stage(const Batch& batch, const PaddedShape& padded);
  // Queues the copy of the slot to the device: what Stage wrote and the first bytes of these
  // sections.
  absl::Status Upload(size_t attention_bytes, size_t job_bytes);

  // The device's side of a section.
  template <typename T>
  T* device(RingSection section) const {
    return reinterpret_cast<T*>(device_memory_.as<std::byte>() + layout_.offset(section));
  }
  // Where the jobs' tokens and other results go. The tokens stay for the next batch to read, until
  // its own jobs replace them; 0 before the first batch.
  int32_t* sampled_tokens() const {
    return reinterpret_cast<int32_t*>(device_memory_.as<std::byte>() + layout_.results_offset());
  }
  void* job_results() const {
    return reinterpret_cast<std::byte*>(sampled_tokens()) + layout_.job_results_offset();
  }

  // Queues the copies back of the sampled tokens, the first `result_bytes` of the jobs' results
  // (-1: no jobs, neither is copied) and rows `host_rows` (rising) of `logits`, rows of vocab_size
  // floats with a stride in elements.
  absl::Status Download(int64_t result_bytes, const float* logits, int64_t logits_stride,
                        std::span<const int32_t> host_rows);
  // Returns the results of the oldest batch in flight, when they are there.
  absl::StatusOr<RingResult> Await();

 private:
  struct Slot {
    std::byte* upload = nullptr;
    std::byte* results = nullptr;
    float* logits = nullptr;
    bool sampled = false;
    size_t result_bytes = 0;
    int64_t host_rows = 0;
    cudaEvent_t done = nullptr;
  };

  BatchRing(CudaDevice& device, const RingShape& shape);
  absl::Status Open();
  absl::Status DownloadLogits(const float* logits, int64_t stride,
                              std::span<const int32_t> host_rows);

  CudaDevice& device_;
  const RingShape shape_;
  const RingLayout layout_;
  Buffer device_memory_;
  Buffer host_memory_;
  std::array<Slot, kSlots> slots_{};
  std::array<size_t, kRingSections> staged_{};  // bytes of the begun batch's sections
  int next_ = 0;        // slot of the next batch to begin, or of the begun one
  bool begun_ = false;  // and not downloaded
  int in_flight_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_RING_H_
