// An emulated GPU: what tests tell it and ask it. Kernels (compiled with
// <simt_emulated.h>) and host code (compiled with this folder's <cuda_runtime.h>) run as they are.
//
// Every thread of a block is a fiber. Blocks run one after the other in an order drawn at random,
// and so do warps between barriers and lanes between collectives. Work given to a stream runs as
// late as the API allows: when the host waits for it.
//
// Checked, each failure naming the kernel:
//  - lanes that reach different collectives, or end while others wait; warps likewise at barriers;
//  - accesses by CopyAsync16, PrefetchToL2, LoadMatrices and atomics: alignment, and for the first
//    two that all of it is memory of the device; LoadMatrices: of the block's shared memory;
//  - WaitForPrevious in every thread of a kernel launched to overlap the one before it. One of its
//    blocks really begins before that one, so that what it touches too early changes results; and
//    if LetNextStart allows it, one of the next kernel before both;
//  - copies still in flight when a thread ends;
//  - stores just past the end of shared memory, or around cudaMalloc's memory (found when it is
//    freed; AddressSanitizer finds them at once, and so do accesses beyond the last page crash);
//  - host code that follows a pointer to the device's memory (HostAccessIsCaught);
//  - launches: shared memory beyond 48 KiB unless allowed for the kernel, beyond what a block may
//    have by the compute capability (227 KiB on 9.0), and shapes that CUDA refuses return CUDA's
//    error;
//  - copies to and from the device: the device's side lies within one cudaMalloc;
//  - launches into a graph: the kernel has been loaded since Configure, by a call that asks or sets
//    its attributes or by a launch outside of one (CUDA loads code lazily, which a capture may not
//    allow);
//  - executable graphs: none is destroyed before its launches have ended (CUDA would put it off,
//    and may wait).
// Of kernels that tell their loads and stores (tlm_cuda_checked), whatever data they find:
//  - races: between threads of a block without SyncThreads or SyncWarp, which Shuffle does not
//  stand
//    for; between blocks without FenceDevice and an atomic; loads before WaitForPrevious of what a
//    kernel ahead stores (races.h).
// Shown as wrong data: missing barriers and CopyAsyncWait (shared memory begins as NaN, and is NaN
// from CopyAsync16 until its wait), copies of what the previous kernel writes begun before it
// ended, memory of the device read before it was written (NaN), a pinned buffer reused before its
// copy ran.
#ifndef TLM_TESTS_SUPPORT_SIMT_EMULATOR_H_
#define TLM_TESTS_SUPPORT_SIMT_EMULATOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/simt/mma_model.h"

namespace tlm::simt::emulated {

// When work in streams runs.
enum class Progress {
  kLazy,    // when the host waits for it, and then no more than is waited for
  kEager,   // at once
  kRandom,  // somewhere between, by the seed
};

struct Options {
  uint64_t seed = 1;
  Progress progress = Progress::kLazy;
  // Begin one block early of every kernel that may overlap the one before it.
  bool overlap = true;
  size_t memory_bytes = size_t{256} << 20;
  size_t graph_bytes = 0;  // that an executable graph takes of them
  int multiprocessors = 4;
  int compute_capability = 90;  // 10 * major + minor
  // What mma.sync computes with; not set: by the compute capability.
  std::optional<MmaUnit> mma = std::nullopt;
  // A defect: of the mma of this number, counted from 1 since Configure, the first sum has bit
  // `flipped_bit` flipped. 0: of none.
  uint64_t flipped_mma = 0;
  int flipped_bit = 0;
  // The same of every mma of the kernels whose name has this in it; empty: of none.
  std::string flipped_kernel = {};
  // Another: kernels of such a name do nothing.
  std::string skipped_kernel = {};
  // Visible ones, which differ in the first byte of their UUIDs alone, the ordinal.
  int devices = 1;
};

// Waits for all work, forgets a failure, and goes on with `options`. Memory and streams stay.
void Configure(const Options& options);

// Without one of these, a failure prints its message and aborts. While one lives, a failed kernel
// ends, its launch's error is cudaErrorLaunchFailure from then on, and the message is kept; the
// destructor forgets the failure. At most one at a time.
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

// Whether host code that touches the device's memory crashes: needs memory protection keys, and a
// build without the sanitizers that watch the heap.
bool HostAccessIsCaught();

// The call of cudaMalloc or cudaHostAlloc after `successes` more ones fails with
// cudaErrorMemoryAllocation, once; negative: none does.
void FailAllocationAfter(int successes);

// Since the process began.
struct Counts {
  uint64_t kernels = 0;           // run to their end
  uint64_t blocks = 0;            // of them
  uint64_t early_blocks = 0;      // begun before the previous kernel
  uint64_t graph_launches = 0;    // cudaGraphLaunch
  uint64_t allocations = 0;       // cudaMalloc and pinned host memory
  uint64_t synchronizations = 0;  // calls in which the host may have waited for a stream or event
  uint64_t loaded = 0;            // kernels; each once since Configure
  uint64_t mma = 0;
};
Counts ReadCounts();

// Bytes that cudaMalloc holds, and how many allocations (device and pinned) there are.
size_t AllocatedBytes();
size_t Allocations();

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_EMULATOR_H_
