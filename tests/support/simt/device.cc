#include "tests/support/simt/device.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace tlm::simt::emulated {
namespace {

// The maximum number of kernels that may have begun while an earlier one has not ended.
constexpr size_t kMaxEarlyBlocks = 3;

size_t BlockCount(const dim3& grid) { return size_t{grid.x} * grid.y * grid.z; }

uint3 BlockAt(const dim3& grid, size_t number) {
  return {static_cast<unsigned>(number % grid.x), static_cast<unsigned>(number / grid.x % grid.y),
          static_cast<unsigned>(number / grid.x / grid.y)};
}

}  // namespace

Device& TheDevice() {
  static Device* device = new Device;  // outlives every static that may still free memory
  return *device;
}

Device::Device() : dice_(options.seed) { default_stream.waits_for_default = false; }

void ReportFailure(const std::string& message) {
  Device& device = TheDevice();
  if (device.recorder == nullptr) {
    std::fprintf(stderr, "emulated GPU: %s\n", message.c_str());
    std::abort();
  }
  device.recorder->Add(message);
}

CUstream_st* Device::Find(cudaStream_t stream) {
  if (stream == nullptr) return &default_stream;
  return streams.contains(stream) ? stream : nullptr;
}

void Device::Give(CUstream_st& stream, Work work) {
  if (stream.capture != nullptr) {
    stream.capture->work.push_back(std::move(work));
    return;
  }
  if (&stream == &default_stream) {
    // The default stream's work comes after all work given to the other streams, except those that
    // opted out.
    for (CUstream_st* other : streams) {
      if (other->waits_for_default) Drain(*other);
    }
  }
  stream.queue.push_back(std::move(work));
  if (&stream == &default_stream || options.progress == Progress::kEager) {
    Drain(stream);
  } else if (options.progress == Progress::kRandom) {
    RunSome();
  }
}

void Device::Drain(CUstream_st& stream, const Marker* until) {
  while (!stream.queue.empty() && (until == nullptr || !until->reached)) Step(stream);
}

void Device::DrainAll() {
  Drain(default_stream);
  for (CUstream_st* stream : streams) Drain(*stream);
}

void Device::RunSome() {
  for (uint64_t steps = dice_.Below(4); steps > 0; --steps) {
    auto chosen = streams.begin();
    if (chosen == streams.end()) return;
    std::advance(chosen, dice_.Below(streams.size()));
    if (!(*chosen)->queue.empty()) Step(**chosen);
  }
}

void Device::Step(CUstream_st& stream) {
  const Work work = std::move(stream.queue.front());
  stream.queue.pop_front();
  const DeviceMemoryAccess access;
  if (work.kernel == nullptr) {
    work.run();
    return;
  }
  if (failure != cudaSuccess) {
    stream.early.clear();
    return;
  }
  RunKernel(stream, *work.kernel);
}

std::unique_ptr<Block> Device::TakeBlock() {
  if (idle_blocks_.empty()) return std::make_unique<Block>();
  auto block = std::move(idle_blocks_.back());
  idle_blocks_.pop_back();
  return block;
}

bool Device::RunBlock(Block& block) {
  if (block.Run(dice_) == Block::Outcome::kEnded) return true;
  failure = cudaErrorLaunchFailure;
  return false;
}

// Before a kernel runs, one block of the next kernel begins and runs until it must wait. If that
// block lets its successor start, one block of the successor begins, and so forth.
void Device::BeginEarly(CUstream_st& stream) {
  std::deque<EarlyBlock>& early = stream.early;
  while (options.overlap && failure == cudaSuccess && early.size() < kMaxEarlyBlocks &&
         early.size() < stream.queue.size()) {
    const Kernel* next = stream.queue[early.size()].kernel.get();
    if (next == nullptr || !next->overlaps_previous) return;
    if (!early.empty() && !early.back().block->lets_next_start()) return;
    EarlyBlock begun{TakeBlock(), dice_.Below(BlockCount(next->grid))};
    begun.block->Begin(*next, BlockAt(next->grid, begun.number), /*previous_ended=*/false);
    if (begun.block->Run(dice_) == Block::Outcome::kFailed) failure = cudaErrorLaunchFailure;
    early.push_back(std::move(begun));
    ++counts.early_blocks;
  }
}

void Device::RunKernel(CUstream_st& stream, const Kernel& kernel) {
  EarlyBlock early;
  if (!stream.early.empty()) {
    early = std::move(stream.early.front());
    stream.early.pop_front();
    early_loads.Forget(early.block.get());
  }
  kernel_races.Begin();
  const std::string& skipped = options.skipped_kernel;
  if (!skipped.empty() && kernel.name.find(skipped) != std::string::npos) return;
  BeginEarly(stream);
  const size_t count = BlockCount(kernel.grid);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0u);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[dice_.Below(i)]);
  std::unique_ptr<Block> block = TakeBlock();
  for (size_t i = 0; i < count && failure == cudaSuccess; ++i) {
    ++counts.blocks;
    if (early.block != nullptr && order[i] == early.number) {
      early.block->PreviousEnded();
      RunBlock(*early.block);
      continue;
    }
    block->Begin(kernel, BlockAt(kernel.grid, order[i]), /*previous_ended=*/true);
    RunBlock(*block);
  }
  ++counts.kernels;
  idle_blocks_.push_back(std::move(block));
  if (early.block != nullptr) idle_blocks_.push_back(std::move(early.block));
}

void Device::Reset(const Options& new_options) {
  options = new_options;
  dice_ = Dice(options.seed);
  mma_count = 0;
  loaded.clear();
  memory.set_limit(options.memory_bytes);
  memory.set_fail_after(-1);
  failure = cudaSuccess;
}

// --- emulator.h ---

void Configure(const Options& options) {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  device.DrainAll();
  device.Reset(options);
}

FailureRecorder::FailureRecorder() {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  device.recorder = this;
}

FailureRecorder::~FailureRecorder() {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  device.DrainAll();
  device.recorder = nullptr;
  device.failure = cudaSuccess;
}

void FailAllocationAfter(int successes) {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  device.memory.set_fail_after(successes);
}

Counts ReadCounts() {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  Counts counts = device.counts;
  counts.allocations = device.memory.calls();
  return counts;
}

size_t AllocatedBytes() {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  return device.memory.device_bytes();
}

size_t Allocations() {
  Device& device = TheDevice();
  std::lock_guard guard(device.lock);
  return device.memory.allocations();
}

}  // namespace tlm::simt::emulated
