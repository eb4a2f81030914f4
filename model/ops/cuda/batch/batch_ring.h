// Copies batches to the device and their results back, with two batches in flight (double
// buffering).
//
//               Begin      Upload             kernels    Download         Await
//   slot 0   host memory  -------->  device  --------->  ---------->  host memory
//   slot 1   host memory  -------->  device  --------->  ---------->  host memory
//            copy stream             compute stream      separate stream
//
// Each slot has its own memory on both sides, pinned on the host. So while the kernels of one batch
// run, the next batch is uploaded and the results of the previous one are downloaded, and the
// compute stream waits only for the event after the upload. A CUDA graph holds addresses, so it
// belongs to one slot. A slot is reused only after its results were awaited: then its kernels and
// all its copies have ended.
#ifndef TLM_MODEL_OPS_CUDA_BATCH_BATCH_RING_H_
#define TLM_MODEL_OPS_CUDA_BATCH_BATCH_RING_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/cuda/batch/batch_ring_layout.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// The results of one batch. Valid until the second Begin after this batch's own.
struct RingResult {
  std::span<const int32_t> sampled_tokens;  // [max_jobs]; empty without jobs
  std::span<const std::byte> results;       // the bytes that Download copied
  std::span<const float> logits;            // [host rows, vocab_size]
};

// Threading is as for Device. Call Begin, Upload and Download once for each batch, in this order;
// then Await, oldest batch first, at the latest when kSlots batches are in flight. Statuses are
// those that CudaDevice::Check returns.
class BatchRing {
 public:
  static constexpr int kSlots = kRingSlots;

  static size_t DeviceBytes(const RingShape& shape) { return RingLayout(shape).bytes(); }
  // Allocates DeviceBytes as kActivations, and as much pinned memory. Returns RESOURCE_EXHAUSTED
  // like Allocate. `device` must outlive the ring.
  static absl::StatusOr<std::unique_ptr<BatchRing>> Create(CudaDevice& device,
                                                           const RingShape& shape);
  ~BatchRing();
  BatchRing(const BatchRing&) = delete;
  BatchRing& operator=(const BatchRing&) = delete;

  // Batches that were begun and not yet awaited.
  int in_flight() const { return in_flight_; }

  // Takes the next slot. Requires that fewer than kSlots batches are in flight. Drops a batch that
  // was begun and never reached its Download.
  absl::Status Begin();
  // The slot of the begun batch, or of the next one to begin.
  int slot() const { return next_; }
  // The upload buffer of the begun batch, upload_bytes of the layout, for the caller to fill.
  std::span<std::byte> host() const;
  // Queues the copy of its first `bytes` bytes. Later work on the compute stream finds them on the
  // device.
  absl::Status Upload(size_t bytes);

  // Device memory of a slot: the uploaded bytes, and the places for the sampled tokens and for the
  // jobs' other results. The next batch, which has the other slot, may read the tokens; they are 0
  // before the first batch.
  template <typename T>
  T* uploaded(int slot, size_t place) const {
    return reinterpret_cast<T*>(slots_[static_cast<size_t>(slot)].on_device + place);
  }
  int32_t* sampled_tokens(int slot) const {
    return uploaded<int32_t>(slot, layout_.upload_bytes());
  }
  void* job_results(int slot) const {
    return uploaded<std::byte>(slot, layout_.upload_bytes() + layout_.job_results_offset());
  }

  // Queues copies to the host: of the sampled tokens, of the first `result_bytes` of the jobs'
  // results (-1: no jobs, neither is copied), and of rows `host_rows` (ascending) of `logits`, rows
  // of vocab_size floats with a stride in elements.
  absl::Status Download(int64_t result_bytes, const float* logits, int64_t logits_stride,
                        std::span<const int32_t> host_rows);
  // Waits for the oldest batch in flight and returns its results.
  absl::StatusOr<RingResult> Await();

 private:
  struct Slot {
    std::byte* upload = nullptr;
    std::byte* results = nullptr;
    std::byte* on_device = nullptr;
    Buffer logits;  // for the largest number of rows in a batch so far
    bool sampled = false;
    size_t result_bytes = 0;
    int64_t host_rows = 0;
    cudaEvent_t uploaded = nullptr;
    cudaEvent_t computed = nullptr;
    cudaEvent_t done = nullptr;
  };

  BatchRing(CudaDevice& device, const RingShape& shape);
  absl::Status Open();
  absl::Status OpenSlot(Slot& slot);
  absl::Status TakeLogits(Slot& slot, int64_t rows);
  absl::Status DownloadLogits(const float* logits, int64_t stride,
                              std::span<const int32_t> host_rows);
  absl::Status Record(cudaEvent_t event, cudaStream_t stream);
  // Makes the following work in `stream` wait for the event.
  absl::Status Follow(cudaStream_t stream, cudaEvent_t event);

  CudaDevice& device_;
  const RingShape shape_;
  const RingLayout layout_;
  Buffer device_memory_;
  Buffer host_memory_;
  cudaStream_t results_stream_ = nullptr;
  std::array<Slot, kSlots> slots_{};
  int next_ = 0;        // slot of the begun batch, or of the next one to begin
  bool begun_ = false;  // Begin was called, Download not yet
  int in_flight_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_BATCH_BATCH_RING_H_
