// A GPU as a device: its memory, its two streams, and recorded runs of kernels.
#ifndef TLM_MODEL_OPS_CUDA_CUDA_DEVICE_H_
#define TLM_MODEL_OPS_CUDA_CUDA_DEVICE_H_

#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/cuda/cuda_options.h"
#include "model/ops/device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// What kernels are planned by.
struct CudaProperties {
  int ordinal = 0;
  int compute_major = 0;  // compute capability
  int compute_minor = 0;
  int multiprocessors = 0;
  size_t shared_bytes_per_block = 0;  // the most a block may be allowed
  size_t shared_bytes_per_multiprocessor = 0;
  size_t l2_bytes = 0;
  size_t total_bytes = 0;
  size_t free_bytes = 0;  // when the device was opened
};

// How RunCaptured has served its calls.
struct GraphCounts {
  int64_t recorded = 0;
  int64_t replayed = 0;
  int64_t eager = 0;         // with a key, and still run directly
  int64_t failed = 0;        // recordings that could not be made
  std::string last_failure;  // why; empty when none failed
};

// Everything goes through one compute stream, in the order of the calls, except what weight uploads
// put on the copy stream. Threading as Device: one thread at a time, any thread. The first failed
// call other than an allocation is a device fault: INTERNAL, and every later call returns it again,
// because results of a device that failed once cannot be trusted.
class CudaDevice : public Device {
 public:
  // Opens device options.device. NOT_FOUND: there is none of that number; FAILED_PRECONDITION: the
  // driver or the device (compute capability below 8.0) is too old; RESOURCE_EXHAUSTED: no memory
  // for a staging buffer.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  const CudaProperties& properties() const { return properties_; }
  // Appends what else decides the bits to info().arithmetic ("sm_90" becomes "sm_90/own-gemm").
  void AddArithmeticMark(std::string_view mark);

  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryPurpose purpose) override;
  // Pinned host memory, aligned to a page; never counted in AllocatedBytes().
  absl::StatusOr<Buffer> AllocatePinned(size_t bytes);
  // What is alive of AllocatePinned.
  size_t pinned_bytes() const { return pinned_bytes_.load(std::memory_order_relaxed); }
  // Recorded graphs count by what the device's free memory fell when they were made.
  std::array<size_t, kMemoryPurposes> AllocatedBytes() const override;
  absl::StatusOr<size_t> FreeBytes();

  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override;
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override;
  absl::Status Synchronize() override;

  // Runs `fn` directly for key 0, where graphs are turned off, and where kMaxGraphs are recorded
  // already. Otherwise records what it queues the first time the key is seen, and launches the
  // recording. A recording that fails is made up for by a direct run; after the second failure the
  // key is always run directly, as it is when memory for the recording lacks. An error that `fn`
  // has in the direct run too is returned.
  absl::Status RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) override;
  static constexpr size_t kMaxGraphs = 256;
  // Forgets all recordings: what they point at is about to go, or keys will mean something else.
  absl::Status DropGraphs();
  const GraphCounts& graph_counts() const { return graph_counts_; }

  cudaStream_t compute_stream() const { return compute_stream_; }
  cudaStream_t copy_stream() const { return copy_stream_; }

  // Makes this the calling thread's current device. Every call here does so itself; for those that
  // start kernels.
  absl::Status MakeCurrent();
  // The status of a runtime call or a launch; remembers a fault. OK only while there is none.
  absl::Status Check(cudaError_t error, std::string_view call);
  // The first fault, or OK.
  const absl::Status& fault() const { return fault_; }

 private:
  struct Graph {
    cudaGraphExec_t exec = nullptr;  // null: not recorded (yet)
    int failures = 0;
  };
  // Pinned memory that CopyToDevice goes through, half by half.
  struct Staging {
    Buffer memory;
    std::array<cudaEvent_t, 2> copied{};
    int next = 0;
  };

  explicit CudaDevice(const CudaOptions& options);
  absl::Status Open(int ordinal);
  absl::Status ReadProperties(int ordinal);
  absl::Status CreateStreams();
  absl::Status Ready();  // no fault, and current
  // Records `fn` into *graph. OK with a null exec: it could not be recorded.
  absl::Status Record(const std::function<absl::Status()>& fn, Graph* graph);
  void CountFailure(const absl::Status& why, Graph* graph);

  const bool graphs_enabled_;
  DeviceInfo info_;
  CudaProperties properties_;
  absl::Status fault_;
  std::array<std::atomic<size_t>, kMemoryPurposes> allocated_{};
  std::atomic<size_t> pinned_bytes_{0};
  cudaStream_t compute_stream_ = nullptr;
  cudaStream_t copy_stream_ = nullptr;
  Staging staging_;
  bool recording_ = false;
  std::unordered_map<uint64_t, Graph> graphs_;
  std::atomic<size_t> graph_bytes_{0};
  GraphCounts graph_counts_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_CUDA_DEVICE_H_
