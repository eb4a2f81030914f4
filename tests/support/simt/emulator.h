// An emulated GPU: its configuration, and its counters for tests. Kernels (compiled with
// <simt_emulated.h>) and host code (compiled with this folder's <cuda_runtime.h>) run unchanged.
//
// Every thread of a thread block is a fiber. Blocks run one after the other in random order; so do
// warps between barriers, and lanes between collectives. Work in a stream runs as late as the API
// allows: when the host waits for it.
//
// It checks the following; each failure names the kernel:
//  - lanes that reach different collectives, or end while others wait; warps likewise at barriers;
//  - addresses of CopyAsync16, PrefetchToL2, LoadMatrices and atomics: alignment. For the first
//    two, that all bytes are device memory; for LoadMatrices, that they are in the block's shared
//    memory;
//  - WaitForPrevious in every thread of a kernel launched to overlap the one before it, or in no
//    thread of a block other than the first. One of its blocks really begins before the previous
//    kernel, so that a premature access changes results; and if LetNextStart allows it, one block
//    of the next kernel begins before both;
//  - asynchronous copies in flight when a thread ends;
//  - stores just past the end of shared memory, or around cudaMalloc's memory (found when it is
//    freed; AddressSanitizer finds them at once, and accesses beyond the last page crash);
//  - host code that dereferences a device pointer (HostAccessIsCaught);
//  - launches: shared memory beyond 48 KiB unless allowed for the kernel, or beyond what a block
//    may have by the compute capability (227 KiB on 9.0), and shapes that CUDA refuses return
//    CUDA's error;
//  - copies to and from the device: the device's side must be within one cudaMalloc;
//  - launches into a graph: the kernel must have been loaded since Configure, by a call that reads
//    or sets its attributes, or by a launch outside of a capture (CUDA loads code lazily, which may
//    be forbidden during a capture);
//  - executable graphs: none may be destroyed before its launches have ended (CUDA would defer it,
//    and may wait).
// In instrumented kernels (library tlm_cuda_checked, races.h), it checks for any data:
//  - races between threads of a block without SyncThreads or SyncWarp, for which Shuffle is no
//    substitute; between blocks without FenceDevice and an atomic; loads before WaitForPrevious of
//    data that an earlier kernel stores.
// Wrong results show the following: a missing barrier or CopyAsyncWait (shared memory begins as
// NaN, and the target of a CopyAsync16 is NaN until its wait), copies of the previous kernel's
// results that begin before it ended, device memory read before it was written (NaN), a pinned
// buffer reused before its copy ran.
#ifndef TLM_TESTS_SUPPORT_SIMT_EMULATOR_H_
#define TLM_TESTS_SUPPORT_SIMT_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/simt/mma_model.h"

namespace tlm::simt::emulated {

// The times at which the work in streams runs.
enum class Progress {
  kLazy,    // when the host waits for it, and no further than needed
  kEager,   // at once
  kRandom,  // at random times, by the seed
};

struct Options {
  uint64_t seed = 1;
  Progress progress = Progress::kLazy;
  // Whether one block begins early, for every kernel that may overlap the previous one.
  bool overlap = true;
  size_t memory_bytes = size_t{256} << 20;
  size_t graph_bytes = 0;  // part of memory_bytes that each executable graph takes
  int multiprocessors = 4;
  int compute_capability = 90;  // 10 * major + minor
  // The arithmetic of mma.sync; unset: by the compute capability.
  std::optional<MmaUnit> mma = std::nullopt;
  // An injected defect: in the mma with this number, counted from 1 since Configure, bit
  // `flipped_bit` of the first sum is flipped. 0: no defect.
  uint64_t flipped_mma = 0;
  int flipped_bit = 0;
  // The same defect in every mma of the kernels whose name contains this; empty: no defect.
  std::string flipped_kernel = {};
  // Another defect: kernels whose name contains this do nothing.
  std::string skipped_kernel = {};
  // Visible devices. Their UUIDs differ in the first byte only, which is the ordinal.
  int devices = 1;
};

// Waits for all work, clears a failure, and continues with `options`. Memory and streams stay.
void Configure(const Options& options);

// Without a FailureRecorder, a failure prints its message and aborts. While a recorder exists, a
// failed kernel ends, its launch's error is cudaErrorLaunchFailure from then on, and the message is
// kept. The destructor clears the failure. At most one exists at a time.
class FailureRecorder {
 public:
  FailureRecorder();
  ~FailureRecorder();
  FailureRecorder(const FailureRecorder&) = delete;
  FailureRecorder& operator=(const FailureRecorder&) = delete;

  const std::vector<std::string>& messages() const { return messages_; }
  void Add(std::string message) { messages_.push_back(std::move(message)); }

 private:
  std::vector<std::string> messages_;
};

// True if host code that accesses device memory crashes. This needs memory protection keys, and a
// build without the sanitizers that watch the heap.
bool HostAccessIsCaught();

// After `successes` more calls of cudaMalloc or cudaHostAlloc, one call fails with
// cudaErrorMemoryAllocation. Negative: no call fails.
void FailAllocationAfter(int successes);

// Counts since the process began.
struct Counts {
  uint64_t kernels = 0;           // kernels that have ended
  uint64_t blocks = 0;            // blocks of these kernels
  uint64_t early_blocks = 0;      // blocks that began before the end of the previous kernel
  uint64_t graph_launches = 0;    // cudaGraphLaunch
  uint64_t allocations = 0;       // cudaMalloc and pinned host memory
  uint64_t synchronizations = 0;  // calls in which the host may have waited for a stream or event
  uint64_t loaded = 0;            // kernels, each counted once since Configure
  uint64_t mma = 0;
};
Counts ReadCounts();

// Return the bytes allocated by cudaMalloc, and the number of allocations (device and pinned).
size_t AllocatedBytes();
size_t Allocations();

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_EMULATOR_H_
