// A GPU as a device: its memory, its two streams, and its CUDA graphs.
#ifndef TLM_MODEL_OPS_CUDA_DEVICE_CUDA_DEVICE_H_
#define TLM_MODEL_OPS_CUDA_DEVICE_CUDA_DEVICE_H_

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
#include "model/ops/cuda/device/cuda_options.h"
#include "model/ops/device.h"
#include "model/tensor/buffer.h"

namespace tlm {

// The properties that kernels are planned for.
struct CudaProperties {
  int ordinal = 0;
  int compute_major = 0;  // compute capability
  int compute_minor = 0;
  int multiprocessors = 0;
  size_t shared_bytes_per_block = 0;  // limit of a thread block
  size_t shared_bytes_per_multiprocessor = 0;
  size_t l2_bytes = 0;
  size_t total_bytes = 0;
  size_t free_bytes = 0;  // free when the device was opened
};

// The number of graphs that could not be captured, and why the last one could not.
struct GraphFailures {
  int64_t count = 0;
  std::string last;
};

// All work goes to one compute stream, in the order of the calls, except uploads of weights and
// batches, which go to the copy stream. Threading is as for Device: one thread at a time, any
// thread. The first failed call other than an allocation is a device fault: INTERNAL. Every later
// call returns it again, because results of a device that failed once cannot be trusted.
class CudaDevice : public Device {
 public:
  // Opens device options.device. Returns NOT_FOUND if no device has that number or UUID; the
  // message lists the visible ones. INVALID_ARGUMENT: several UUIDs begin with it.
  // FAILED_PRECONDITION: the driver or the device (compute capability below 8.0) is too old.
  // RESOURCE_EXHAUSTED: no memory for a staging buffer.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }
  const CudaProperties& properties() const { return properties_; }
  // Set the findings of an arithmetic check: info().arithmetic_probe, and info().invariance_fault
  // for the next model.
  void SetArithmeticProbe(std::string probe) { info_.arithmetic_probe = std::move(probe); }
  void SetInvarianceFault(std::string fault) { info_.invariance_fault = std::move(fault); }

  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryPurpose purpose) override;
  // Allocates pinned host memory, page-aligned. It is not counted in AllocatedBytes().
  absl::StatusOr<Buffer> AllocatePinned(size_t bytes);
  // Bytes of live buffers of AllocatePinned.
  size_t pinned_bytes() const { return pinned_bytes_.load(std::memory_order_relaxed); }
  // CUDA graphs are counted with an average size: the decrease of the device's free memory per
  // graph while RecordAhead captured the first ones.
  std::array<size_t, kMemoryPurposes> AllocatedBytes() const override;
  absl::StatusOr<size_t> FreeBytes();

  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override;
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override;
  absl::Status Synchronize() override;

  // Runs `fn` directly for key 0, and if graphs are turned off. Otherwise captures `fn` the first
  // time a key is seen, and launches the graph. Beyond options.max_graphs, the least recently
  // launched graph is destroyed, after it has run. If a capture fails, `fn` runs directly. After
  // two failures a key is always run directly. An error that `fn` also has in the direct run is
  // returned.
  absl::Status RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) override;
  // Returns false if there are options.max_graphs graphs, if these calls have taken
  // options.record_ahead_ms since DropGraphs, if half of the initially free memory is used, and
  // after a failure.
  absl::StatusOr<bool> RecordAhead(uint64_t key, const std::function<absl::Status()>& fn) override;
  // Destroys all graphs, after running ones have ended. Use it before memory that they point at is
  // freed, or before keys change their meaning.
  absl::Status DropGraphs();
  RunCounts run_counts() const override { return run_counts_; }
  void CountLibraryFailure() { ++run_counts_.library_failures; }
  const GraphFailures& graph_failures() const { return graph_failures_; }
  // Time spent in RecordAhead since DropGraphs.
  absl::Duration ahead_time() const { return ahead_.time; }

  cudaStream_t compute_stream() const { return compute_stream_; }
  cudaStream_t copy_stream() const { return copy_stream_; }

  // Makes this the calling thread's current device. Every call here does so itself; code that
  // launches kernels needs it.
  absl::Status MakeCurrent();
  // Returns the status of a runtime call or of a launch. Remembers a fault; OK only without a
  // fault.
  absl::Status Check(cudaError_t error, std::string_view call);
  // The first fault, or OK.
  const absl::Status& fault() const { return fault_; }

 private:
  struct Graph {
    cudaGraphExec_t exec = nullptr;  // null: not captured (yet)
    int failures = 0;
    int64_t last_use = 0;
  };
  // A graph without a key, destroyed once the event has passed.
  struct Retired {
    cudaGraphExec_t exec = nullptr;
    cudaEvent_t idle = nullptr;
  };
  // The resources that RecordAhead has used.
  struct Ahead {
    int64_t graphs = 0;
    absl::Duration time;
    size_t free_before = 0;  // free memory before the first graph
    size_t free_after = 0;   // free memory after the last one
    bool failed = false;
  };
  // Pinned memory that CopyToDevice copies through, half by half.
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
  // Captures `fn` into *graph. If that fails, exec is null.
  void Record(const std::function<absl::Status()>& fn, Graph* graph);
  void CountFailure(const absl::Status& why, Graph* graph);
  // Makes room for one more graph.
  absl::Status RetireOldest();
  // Destroys retired graphs that have ended; with `all` every one, none of which may be running.
  void DestroyRetired(bool all);
  absl::Status RecordOneAhead(uint64_t key, const std::function<absl::Status()>& fn);
  void CountGraphBytes();

  const size_t max_graphs_;  // 0: graphs are not captured
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

#endif  // TLM_MODEL_OPS_CUDA_DEVICE_CUDA_DEVICE_H_
