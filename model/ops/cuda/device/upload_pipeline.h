// Threads that fill pinned memory while the device copies from it.
#ifndef TLM_MODEL_OPS_CUDA_DEVICE_UPLOAD_PIPELINE_H_
#define TLM_MODEL_OPS_CUDA_DEVICE_UPLOAD_PIPELINE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/mutex.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// A range of device memory to fill.
struct UploadPiece {
  void* to = nullptr;
  size_t bytes = 0;  // at most slot_bytes
};

// Pieces are numbered over the pipeline's life. Piece p uses slot p % slots. In order of their
// numbers, pieces are:
//
//   copied by the device | in the copy stream | filled | being filled | slot free | not yet
//                                             ^ next for the stream                ^ free_before_
//
// Only the calling thread makes CUDA calls, one thread at a time; the other threads fill slots.
class UploadPipeline {
 public:
  // Makes `slots` >= 2 * threads slots of slot_bytes each. RESOURCE_EXHAUSTED: no pinned memory.
  // `device` must outlive the pipeline.
  static absl::StatusOr<std::unique_ptr<UploadPipeline>> Create(CudaDevice& device, int threads,
                                                                int slots, size_t slot_bytes);
  // Waits for the copies.
  ~UploadPipeline();
  UploadPipeline(const UploadPipeline&) = delete;
  UploadPipeline& operator=(const UploadPipeline&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }
  size_t slot_bytes() const { return slot_bytes_; }

  // Calls fill(piece, slot memory) for pieces 0 .. pieces - 1, in any order and several at a time,
  // and copies each to place(piece). Returns when all are filled and their copies are queued, or
  // with the error of the first piece that has one; then no call of `fill` is running. Later work
  // on the compute stream finds the copies done.
  absl::Status Run(int64_t pieces, const std::function<UploadPiece(int64_t)>& place,
                   const std::function<absl::Status(int64_t, void*)>& fill);

 private:
  // A piece to fill: its number, its number within the running call, and the function.
  struct Task {
    int64_t piece = 0;
    int64_t index = 0;
    const std::function<absl::Status(int64_t, void*)>* fill = nullptr;
  };
  struct Slot {
    std::byte* memory = nullptr;
    cudaEvent_t copied = nullptr;
    int64_t filled = -1;  // the piece it holds
    absl::Status error;   // error of filling it
  };

  UploadPipeline(CudaDevice& device, int slots, size_t slot_bytes);
  absl::Status Open(int threads);
  void ThreadMain();
  // Waits for a piece to fill; nullopt when the pipeline ends.
  std::optional<Task> NextTask() TLM_EXCLUDES(mutex_);
  void Report(int64_t piece, absl::Status error) TLM_EXCLUDES(mutex_);
  Slot& SlotOf(int64_t piece) { return slots_[static_cast<size_t>(piece) % slots_.size()]; }
  // Lets the threads fill the pieces before `limit`, after waiting for their slots.
  absl::Status FreeSlotsBefore(int64_t limit);
  absl::Status AwaitFilled(int64_t piece);
  absl::Status CopyPiece(int64_t piece, const UploadPiece& place);
  // Stops the threads from beginning pieces; returns when none is being filled.
  void StopFilling();

  CudaDevice& device_;
  const size_t slot_bytes_;
  Buffer memory_;
  std::vector<Slot> slots_;  // `filled` and `error` guarded by mutex_

  Mutex mutex_;
  CondVar work_;    // there may be a piece to fill
  CondVar filled_;  // a piece was filled
  const std::function<absl::Status(int64_t, void*)>* fill_ TLM_GUARDED_BY(mutex_) = nullptr;
  int64_t first_ TLM_GUARDED_BY(mutex_) = 0;  // number of the running call's piece 0
  int64_t next_fill_ TLM_GUARDED_BY(mutex_) = 0;
  int64_t free_before_ TLM_GUARDED_BY(mutex_) = 0;  // pieces below it may be filled
  int filling_ TLM_GUARDED_BY(mutex_) = 0;
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  int64_t begun_ = 0;  // pieces of all calls so far
  std::vector<std::thread> threads_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_DEVICE_UPLOAD_PIPELINE_H_
