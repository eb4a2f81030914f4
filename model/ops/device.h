// A device holds tensors and runs operations on them: the host's memory and threads, or a GPU.
#ifndef TLM_MODEL_OPS_DEVICE_H_
#define TLM_MODEL_OPS_DEVICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tensor/buffer.h"

namespace tlm {

// The purpose of an allocation; ModelInfo reports the bytes of each.
enum class MemoryPurpose { kWeights, kKvCache, kActivations, kLogits, kRuntime, kGraphs };
inline constexpr int kMemoryPurposes = 6;

struct DeviceInfo {
  std::string backend;  // "cpu" or "cuda"
  std::string name;     // for example "AMD EPYC 9575F (2 threads, avx512)"
  std::string uuid;     // UUID of a GPU, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"; else empty
  // For example "avx512"; devices with the same backend and arithmetic give the same bits.
  std::string arithmetic;
  // A digest of products whose order of additions the processor chooses; equal on devices that give
  // the same bits. Empty if there are no such products.
  std::string arithmetic_probe;
  size_t total_bytes = 0;  // memory of the device
  size_t free_bytes = 0;   // bytes free when the device was opened; 0 if host_addressable
  bool host_addressable = false;
  // Says why results depend on the rest of the batch or on how sequences are divided into batches.
  // Empty if they do not, as model/ops/ops.h requires.
  std::string invariance_fault;
};

// Counts how steps were run, since the device was opened.
struct RunCounts {
  int64_t ahead = 0;     // recordings made by RecordAhead
  int64_t recorded = 0;  // runs that had to be recorded first
  int64_t replayed = 0;
  int64_t direct = 0;   // runs with a key, without recording
  int64_t dropped = 0;  // recordings evicted by others
  // Ranges of row counts of a product that a library failed to compute, and is not used for again.
  int64_t library_failures = 0;
};

// Copies and everything queued by Ops happen in the order of the calls. Not thread-safe: one thread
// at a time, the engine thread when serving. Errors are INTERNAL (a device fault) unless stated.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // Allocates memory with alignment 64 or better and undefined contents. RESOURCE_EXHAUSTED names
  // the requested bytes and the remaining bytes.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryPurpose purpose) = 0;
  // Bytes of all live buffers, packed matrices included, indexed by MemoryPurpose; kGraphs grows
  // while shapes recur. Any thread may call it.
  virtual std::array<size_t, kMemoryPurposes> AllocatedBytes() const = 0;

  // Returns once `from` may be reused.
  virtual absl::Status CopyToDevice(void* to, const void* from, size_t bytes) = 0;
  // Returns when the bytes have arrived.
  virtual absl::Status CopyToHost(void* to, const void* from, size_t bytes) = 0;
  // Copies between two places of the device, which do not overlap.
  virtual absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  // Returns when all queued work is done.
  virtual absl::Status Synchronize() = 0;

  // Runs `fn`, which calls only Ops, with the same arguments whenever the key is the same. A device
  // may record the calls the first time and replay them afterwards.
  virtual absl::Status RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) = 0;
  // Records `fn` for RunCaptured without running it, before the first batch. Returns false if `fn`
  // is not recorded and further calls would fail too: this device does not record, or its budget is
  // spent.
  virtual absl::StatusOr<bool> RecordAhead(uint64_t, const std::function<absl::Status()>&) {
    return false;
  }
  virtual RunCounts run_counts() const { return {}; }
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_DEVICE_H_
