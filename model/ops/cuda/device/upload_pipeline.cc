#include "model/ops/cuda/device/upload_pipeline.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/cuda/device/cuda_status.h"

namespace tlm {

absl::StatusOr<std::unique_ptr<UploadPipeline>> UploadPipeline::Create(CudaDevice& device,
                                                                       int threads, int slots,
                                                                       size_t slot_bytes) {
  TLM_CHECK(threads > 0 && slots >= 2 * threads && slot_bytes > 0);
  std::unique_ptr<UploadPipeline> pipeline(new UploadPipeline(device, slots, slot_bytes));
  TLM_RETURN_IF_ERROR(pipeline->Open(threads));
  return pipeline;
}

UploadPipeline::UploadPipeline(CudaDevice& device, int slots, size_t slot_bytes)
    : device_(device), slot_bytes_(slot_bytes), slots_(static_cast<size_t>(slots)) {}

absl::Status UploadPipeline::Open(int threads) {
  TLM_ASSIGN_OR_RETURN(memory_, device_.AllocatePinned(slots_.size() * slot_bytes_));
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].memory = memory_.as<std::byte>() + i * slot_bytes_;
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaEventCreateWithFlags(&slots_[i].copied, cudaEventDisableTiming),
                      "cudaEventCreateWithFlags"));
  }
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { ThreadMain(); });
  return absl::OkStatus();
}

UploadPipeline::~UploadPipeline() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  work_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
  // Copies from the memory that is about to be freed may be in flight, even after some faults.
  device_.MakeCurrent().IgnoreError();
  cudaStreamSynchronize(device_.copy_stream());
  for (const Slot& slot : slots_) {
    if (slot.copied != nullptr) cudaEventDestroy(slot.copied);
  }
}

absl::Status UploadPipeline::Run(int64_t pieces, const std::function<UploadPiece(int64_t)>& place,
                                 const std::function<absl::Status(int64_t, void*)>& fill) {
  TLM_RETURN_IF_ERROR(device_.MakeCurrent());
  const int64_t first = begun_;
  const int64_t end = first + pieces;
  {
    MutexLock lock(&mutex_);
    fill_ = &fill;
    first_ = next_fill_ = free_before_ = first;
  }
  absl::Status status;
  // Enough slots ahead to keep every thread busy; at least as many are left for the device to copy
  // from.
  const int64_t ahead = threads();
  for (int64_t piece = first; piece < end && status.ok(); ++piece) {
    status = FreeSlotsBefore(std::min(end, piece + 1 + ahead));
    if (status.ok()) status = AwaitFilled(piece);
    if (status.ok()) status = CopyPiece(piece, place(piece - first));
  }
  StopFilling();
  begun_ = end;
  TLM_RETURN_IF_ERROR(status);
  if (pieces == 0) return absl::OkStatus();
  return device_.Check(cudaStreamWaitEvent(device_.compute_stream(), SlotOf(end - 1).copied, 0),
                       "cudaStreamWaitEvent");
}

absl::Status UploadPipeline::FreeSlotsBefore(int64_t limit) {
  int64_t free = 0;
  {
    MutexLock lock(&mutex_);
    free = free_before_;
  }
  for (; free < limit; ++free) {
    // The event belongs to the piece that had the slot before; an unrecorded event counts as
    // passed.
    TLM_RETURN_IF_ERROR(
        device_.Check(cudaEventSynchronize(SlotOf(free).copied), "cudaEventSynchronize"));
    {
      MutexLock lock(&mutex_);
      free_before_ = free + 1;
    }
    work_.NotifyOne();
  }
  return absl::OkStatus();
}

absl::Status UploadPipeline::AwaitFilled(int64_t piece) {
  Slot& slot = SlotOf(piece);
  MutexLock lock(&mutex_);
  while (slot.filled != piece) filled_.Wait(&mutex_);
  return slot.error;
}

absl::Status UploadPipeline::CopyPiece(int64_t piece, const UploadPiece& place) {
  TLM_CHECK(place.bytes <= slot_bytes_);
  const Slot& slot = SlotOf(piece);
  TLM_RETURN_IF_ERROR(device_.Check(cudaMemcpyAsync(place.to, slot.memory, place.bytes,
                                                    cudaMemcpyHostToDevice, device_.copy_stream()),
                                    "cudaMemcpyAsync"));
  return device_.Check(cudaEventRecord(slot.copied, device_.copy_stream()), "cudaEventRecord");
}

void UploadPipeline::StopFilling() {
  MutexLock lock(&mutex_);
  free_before_ = next_fill_;
  while (filling_ > 0) filled_.Wait(&mutex_);
  fill_ = nullptr;
}

void UploadPipeline::ThreadMain() {
  while (const std::optional<Task> task = NextTask()) {
    Report(task->piece, (*task->fill)(task->index, SlotOf(task->piece).memory));
  }
}

std::optional<UploadPipeline::Task> UploadPipeline::NextTask() {
  MutexLock lock(&mutex_);
  while (!stopping_ && next_fill_ >= free_before_) work_.Wait(&mutex_);
  if (stopping_) return std::nullopt;
  ++filling_;
  const int64_t piece = next_fill_++;
  return Task{.piece = piece, .index = piece - first_, .fill = fill_};
}

void UploadPipeline::Report(int64_t piece, absl::Status error) {
  MutexLock lock(&mutex_);
  --filling_;
  SlotOf(piece).filled = piece;
  SlotOf(piece).error = std::move(error);
  filled_.NotifyAll();
}

}  // namespace tlm
