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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

// Recordings that could not be made, and why the last one could not.
struct GraphFailures {
  int64_t count = 0;
  std::string last;
};

// Everything goes through one compute stream, in the order of the calls, except what uploads of
// weights and batches put on the copy stream. Threading as Device: one thread at a time, any
// thread. The first failed call other than an allocation is a device fault: INTERNAL, and every
// later call returns it again, because results of a device that failed once cannot be trusted.
class CudaDevice : public Device {
 public:
  // Opens device options.device. NOT_FOUND: there is none of that number or UUID, and the message
  // lists those that are visible; INVALID_ARGUMENT: several have a UUID that begins so;
  // FAILED_PRECONDITION: the driver or the device (compute capability below 8.0) is too old;
  // RESOURCE_EXHAUSTED: no memory for a staging buffer.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  const CudaProperties& properties() const { return properties_; }
  // What a check of the arithmetic has found: info().arithmetic_probe, and info().batch_invariant
  // for the model to come.
  void SetArithmeticProbe(std::string probe) { info_.arithmetic_probe = std::move(probe); }
  void SetBatchInvariant(bool holds) { info_.batch_invariant = holds; }

  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryPurpose purpose) override;
  // Pinned host memory, aligned to a page; never counted in AllocatedBytes().
  absl::StatusOr<Buffer> AllocatePinned(size_t bytes);
  // What is alive of AllocatePinned.
  size_t pinned_bytes() const { return pinned_bytes_.load(std::memory_order_relaxed); }
  // Recorded graphs count by what the device's free memory fell, for each of them, while
  // RecordAhead made the first.
  std::array<size_t, kMemoryPurposes> AllocatedBytes() const override;
  absl::StatusOr<size_t> FreeBytes();

  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override;
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override;
  absl::Status Synchronize() override;

  // Runs `fn` directly for key 0 and where graphs are turned off. Otherwise records what it queues
  // the first time the key is seen, and launches the recording; with options.max_graphs of them,
  // the one launched longest ago goes, when it has run. A recording that fails is made up for by a
  // direct run; after the second failure the key is always run directly, as it is when memory for
  // the recording lacks. An error that `fn` has in the direct run too is returned.
  absl::Status RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) override;
  // False with options.max_graphs of them, when options.record_ahead_ms have passed in these calls
  // since DropGraphs, when half the memory that was free then is taken, and after a failure.
  absl::StatusOr<bool> RecordAhead(uint64_t key, const std::function<absl::Status()>& fn) override;
  // Forgets all recordings: what they point at is about to go, or keys will mean something else.
  // Waits for those that run.
  absl::Status DropGraphs();
  RunCounts run_counts() const override { return run_counts_; }
  const GraphFailures& graph_failures() const { return graph_failures_; }
  // Spent in RecordAhead since DropGraphs.
  absl::Duration ahead_time() const { return ahead_.time; }

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
    int64_t last_use = 0;
  };
  // A recording without a key; it goes when the event has passed.
  struct Retired {
    cudaGraphExec_t exec = nullptr;
    cudaEvent_t idle = nullptr;
  };
  // What RecordAhead has spent.
  struct Ahead {
    int64_t graphs = 0;
    absl::Duration time;
    size_t free_before = 0;  // the first one
    size_t free_after = 0;   // the last one
    bool failed = false;
  };
  // Pinned memory that CopyToDevice goes through, half by half.
  struct Staging {
    Buffer memory;
    std::array<cudaEvent_t, 2> copied{};
    int next = 0;
  };

  explicit CudaDevice(const CudaOptions& options);
  absl::Status Open(int ordinal, std::string_view uuid_prefix);
  absl::Status ReadProperties(int ordinal, std::string_view uuid_prefix);
  absl::Status CreateStreams();
  absl::Status Ready();  // no fault, and current
  // Records `fn` into *graph. A null exec then: it could not be recorded.
  void Record(const std::function<absl::Status()>& fn, Graph* graph);
  void CountFailure(const absl::Status& why, Graph* graph);
  // Makes room for one more graph.
  absl::Status RetireOldest();
  // Destroys what was retired and runs no more; `all`: everything, which nothing may run then.
  void DestroyRetired(bool all);
  absl::Status RecordOneAhead(uint64_t key, const std::function<absl::Status()>& fn);
  void CountGraphBytes();

  const size_t max_graphs_;  // 0: none are recorded
  const absl::Duration ahead_limit_;
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
  std::vector<Retired> retired_;  // oldest first
  int64_t uses_ = 0;              // launches of graphs
  Ahead ahead_;
  std::atomic<size_t> graph_bytes_{0};
  RunCounts run_counts_;
  GraphFailures graph_failures_;
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CUDA_CUDA_DEVICE_H_
