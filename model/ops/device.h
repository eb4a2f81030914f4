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
  std::string backend;  // "cpu", "cuda"
  std::string name;     // "AMD EPYC 9575F (2 threads, avx512)"
  std::string uuid;     // of a GPU, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"; else empty
  // "avx512"; devices with the same backend and arithmetic give the same bits.
  std::string arithmetic;
  // A digest of products whose order of additions the processor chooses; equal on devices that give
  // the same bits. "" where there are no such products.
  std::string arithmetic_probe;
  size_t total_bytes = 0;  // memory of the device
  size_t free_bytes = 0;   // free when it was opened; 0 if host_addressable
  bool host_addressable = false;
  // What makes results depend on the rest of the batch or on the division of sequences into
  // batches, in words. Empty: nothing does, as model/ops/ops.h requires.
  std::string invariance_fault;
};

// How steps were run; all but `ahead` count since the device was opened.
struct RunCounts {
  int64_t ahead = 0;     // recordings made before they were needed
  int64_t recorded = 0;  // runs that had to be recorded first
  int64_t replayed = 0;
  int64_t direct = 0;   // with a key, and not recorded
  int64_t dropped = 0;  // recordings that made room for others
  // Ranges of row counts of a product that a library failed to compute, and is not asked for again.
  int64_t library_failures = 0;
};

// Copies and everything queued by Ops happen in the order of the calls. Not thread-safe: one thread
// at a time, in serving the engine thread. Errors are INTERNAL (a device fault) unless said.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;

  // Memory with alignment 64 or better, contents undefined. RESOURCE_EXHAUSTED names the bytes
  // asked for and those left.
  virtual absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryPurpose purpose) = 0;
  // Bytes of all live buffers of each purpose, packed matrices included, by MemoryPurpose; those of
  // kGraphs grow while shapes recur. From any thread.
  virtual std::array<size_t, kMemoryPurposes> AllocatedBytes() const = 0;

  // Returns as soon as `from` may be reused.
  virtual absl::Status CopyToDevice(void* to, const void* from, size_t bytes) = 0;
  // Returns when the bytes have arrived.
  virtual absl::Status CopyToHost(void* to, const void* from, size_t bytes) = 0;
  // From one place of the device to another; the two do not overlap.
  virtual absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  // Returns when all queued work is done.
  virtual absl::Status Synchronize() = 0;

  // Runs `fn`, which only calls Ops with the same arguments whenever the key is the same. A device
  // may record the calls the first time and replay them afterwards.
  virtual absl::Status RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) = 0;
  // Records `fn` for RunCaptured without running it, before a first batch comes. False if it is
  // not, and no other would be: nothing is recorded on this device, or what may be spent on it is.
  virtual absl::StatusOr<bool> RecordAhead(uint64_t, const std::function<absl::Status()>&) {
    return false;
  }
  virtual RunCounts run_counts() const { return {}; }
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_DEVICE_H_
