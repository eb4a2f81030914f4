// The emulated device: streams of work, and the code that runs them. It is the base of the API in
// <cuda_runtime.h> (runtime_*.cc).
#ifndef TLM_TESTS_SUPPORT_SIMT_DEVICE_H_
#define TLM_TESTS_SUPPORT_SIMT_DEVICE_H_

#include <cuda_runtime.h>

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/support/simt/block.h"
#include "tests/support/simt/emulator.h"
#include "tests/support/simt/memory.h"

namespace tlm::simt::emulated {

// One item of a stream's queue: a kernel, or anything else.
struct Work {
  std::shared_ptr<const Kernel> kernel;  // null: `run` is the work
  std::function<void()> run;
};

// A block that has begun early, and its number in its kernel's grid.
struct EarlyBlock {
  std::unique_ptr<Block> block;
  size_t number = 0;
};

// The point in a stream that cudaEventRecord marked.
struct Marker {
  CUstream_st* stream = nullptr;
  CUgraph_st* capture = nullptr;  // recorded while the stream was captured into this graph
  bool reached = false;
  std::chrono::steady_clock::time_point time;
};

}  // namespace tlm::simt::emulated

struct CUgraph_st {
  std::vector<tlm::simt::emulated::Work> work;
  CUstream_st* origin = nullptr;  // the stream whose capture fills it; null once the capture has
                                  // ended
};
struct CUgraphExec_st {
  std::vector<tlm::simt::emulated::Work> work;
  size_t bytes = 0;  // bytes of the device's memory
  // The number of launches that have not ended.
  std::shared_ptr<int> running = std::make_shared<int>(0);
};
struct CUstream_st {
  bool waits_for_default = true;  // false if made with cudaStreamNonBlocking
  std::deque<tlm::simt::emulated::Work> queue;
  CUgraph_st* capture = nullptr;
  // Early blocks, one for each of the queue's first kernels: they began before the kernels ahead of
  // these had ended.
  std::deque<tlm::simt::emulated::EarlyBlock> early;
};
struct CUevent_st {
  std::shared_ptr<tlm::simt::emulated::Marker> marker;  // null: never recorded
};

namespace tlm::simt::emulated {

// All members are guarded by `lock`, which is held while kernels run.
class Device {
 public:
  Device();

  std::recursive_mutex lock;
  Memory memory;
  Options options;
  Counts counts;
  uint64_t mma_count = 0;  // since Reset
  KernelRaces kernel_races;
  EarlyLoads early_loads;
  FailureRecorder* recorder = nullptr;
  // After a failed kernel, every later call returns its error.
  cudaError_t failure = cudaSuccess;
  std::map<KernelAddress, size_t> allowed_shared_bytes;
  std::set<KernelAddress> loaded;  // since Reset
  CUstream_st default_stream;
  std::set<CUstream_st*> streams;
  std::set<CUgraph_st*> captures;  // in progress
  size_t graph_bytes = 0;          // memory of all executable graphs

  // Returns the stream of a handle; null if there is none.
  CUstream_st* Find(cudaStream_t stream);
  // Adds work to the stream, or to the graph that it is captured into, and runs work as
  // options.progress requires.
  void Give(CUstream_st& stream, Work work);
  // Runs the stream's work: all of it, or until the marker is reached.
  void Drain(CUstream_st& stream, const Marker* until = nullptr);
  void DrainAll();
  // Runs the first item of the stream's queue.
  void Step(CUstream_st& stream);
  // Drops all work and the failure.
  void Reset(const Options& new_options);

 private:
  void RunSome();
  void RunKernel(CUstream_st& stream, const Kernel& kernel);
  void BeginEarly(CUstream_st& stream);
  bool RunBlock(Block& block);
  std::unique_ptr<Block> TakeBlock();

  Dice dice_;
  std::vector<std::unique_ptr<Block>> idle_blocks_;
};

Device& TheDevice();

// Passes the message to the FailureRecorder, or prints it and aborts.
void ReportFailure(const std::string& message);

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_DEVICE_H_
