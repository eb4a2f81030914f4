#include "tests/support/simt/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/support/simt/device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)(from), (void)(bytes))
#endif

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace tlm::simt::emulated {

unsigned char* shared_memory = nullptr;
Block* current_block = nullptr;
Thread* current_thread = nullptr;

namespace {

constexpr unsigned char kPoison = 0xff;
constexpr unsigned char kGuard = 0xa5;
constexpr size_t kSharedGuardBytes = 1024;

std::string Coordinates(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

const char* Name(Collective collective) {
  switch (collective) {
    case Collective::kSyncThreads:
      return "SyncThreads";
    case Collective::kSyncWarp:
      return "SyncWarp";
    case Collective::kShuffle:
      return "Shuffle";
    case Collective::kBallot:
      return "Ballot";
    case Collective::kLoadMatrices:
      return "LoadMatrices";
    case Collective::kLoadMatricesTransposed:
      return "LoadMatricesTransposed";
    case Collective::kMultiplyAddBf16:
      return "MultiplyAdd<Bf16>";
    case Collective::kMultiplyAddF16:
      return "MultiplyAdd<F16>";
  }
  return "?";
}

const char* Name(Warp::State state) {
  switch (state) {
    case Warp::State::kRuns:
      return "running";
    case Warp::State::kAtBarrier:
      return "at SyncThreads";
    case Warp::State::kWaitsForPrevious:
      return "waiting for the previous kernel";
    case Warp::State::kEnded:
      return "ended";
  }
  return "?";
}

}  // namespace

// --- Copies in flight. ---

void CopyQueue::Wait(size_t pending) {
  while (group_ends_.size() - landed_groups_ > pending) {
    const size_t end = group_ends_[landed_groups_++];
    for (; landed_ < end; ++landed_) {
      const PendingCopy& copy = copies_[landed_];
      current_block->AccessShared(copy.shared, 16, AccessKind::kCopyEnds);
      if (!copy.valid) {
        std::memset(copy.shared, 0, 16);
        continue;
      }
      CheckGlobalQuad(copy.global);
      std::memcpy(copy.shared, copy.early ? copy.bytes.data() : copy.global, 16);
    }
  }
  if (landed_groups_ == group_ends_.size() && empty()) Clear();
}

void CopyQueue::Clear() {
  copies_.clear();
  group_ends_.clear();
  landed_ = landed_groups_ = 0;
}

// --- The run of a block. ---

Block::Block() {
  void* memory = nullptr;
  if (posix_memalign(&memory, 4096, kMaxSharedBytes + kSharedGuardBytes) != 0) std::abort();
  shared_ = static_cast<unsigned char*>(memory);
}

Block::~Block() {
  TheDevice().early_loads.Forget(this);
  ASAN_UNPOISON_MEMORY_REGION(shared_, kMaxSharedBytes + kSharedGuardBytes);
  std::free(shared_);
}

void Block::EnsureThreads(int count) {
  const int warps = (count + kLanes - 1) / kLanes;
  while (static_cast<int>(threads_.size()) < warps) {
    auto lanes = std::make_unique<Thread[]>(kLanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane].fiber.Allocate(static_cast<int>(threads_.size()) * kLanes + lane);
      lanes[lane].lane = lane;
    }
    threads_.push_back(std::move(lanes));
  }
  if (warps_.empty()) warps_.resize(kMaxThreads / kLanes);
}

void Block::PrepareSharedMemory(size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(shared_, kMaxSharedBytes + kSharedGuardBytes);
  std::memset(shared_, kPoison, bytes);
  std::memset(shared_ + bytes, kGuard, kSharedGuardBytes);
  ASAN_POISON_MEMORY_REGION(shared_ + bytes, kMaxSharedBytes + kSharedGuardBytes - bytes);
}

bool Block::SharedGuardIntact() const {
#if defined(__SANITIZE_ADDRESS__)
  return true;
#else
  const unsigned char* guard = shared_ + kernel_->shared_bytes;
  return std::all_of(guard, guard + kSharedGuardBytes, [](unsigned char b) { return b == kGuard; });
#endif
}

void Block::Begin(const Kernel& kernel, uint3 index, bool previous_ended) {
  kernel_ = &kernel;
  index_ = index;
  previous_ended_ = previous_ended;
  lets_next_start_ = waited_ = never_waited_ = false;
  running_ = nullptr;
  const dim3 size = kernel.block;
  const int threads = static_cast<int>(size.x * size.y * size.z);
  EnsureThreads(threads);
  PrepareSharedMemory(kernel.shared_bytes);
  warp_count_ = (threads + kLanes - 1) / kLanes;
  races_.Begin(kernel.shared_bytes, warp_count_);
  number_ = index.x + kernel.grid.x * (index.y + kernel.grid.y * index.z);
  acquired_.clear();
  for (int w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    warp.threads = threads_[w].get();
    warp.lanes = std::min(kLanes, threads - w * kLanes);
    warp.state = Warp::State::kRuns;
    warp.running = warp.all();
    for (int lane = 0; lane < warp.lanes; ++lane) {
      const unsigned number = w * kLanes + lane;
      Thread& thread = warp.threads[lane];
      thread.warp = &warp;
      thread.number = static_cast<uint16_t>(number);
      thread.fence = {};
      thread.acquiring.clear();
      thread.index = {number % size.x, number / size.x % size.y, number / (size.x * size.y)};
      thread.waited_for_previous = false;
      thread.copies.Clear();
      thread.fiber.Begin(&Block::ThreadEntry);
    }
  }
}

void Block::ThreadEntry() {
  Fiber::Entered();
  Block& block = *current_block;
  block.kernel_->run();
  if (!current_thread->copies.empty()) {
    block.Complain(
        "a thread ended with CopyAsync16 in flight: CopyAsyncCommit and CopyAsyncWait<0>");
    block.Abandon();
  }
  block.waited_ |= current_thread->waited_for_previous;
  block.never_waited_ |= !current_thread->waited_for_previous;
  if (block.kernel_->overlaps_previous && block.never_waited_ &&
      (block.waited_ || block.number_ == 0)) {
    block.Complain(
        "a thread ended without WaitForPrevious in a kernel that overlaps the one before, in the "
        "first block or beside one that waited");
    block.Abandon();
  }
  block.StopAt(Stop::kEnded);
  std::abort();  // an ended lane is never continued
}

Block::Outcome Block::Run(Dice& dice) {
  dice_ = &dice;
  current_block = this;
  shared_memory = shared_;
  blockIdx = index_;
  blockDim = kernel_->block;
  gridDim = kernel_->grid;
  if (previous_ended_) {
    for (int w = 0; w < warp_count_; ++w) {
      Warp& warp = warps_[w];
      if (warp.state != Warp::State::kWaitsForPrevious) continue;
      uint32_t waiting = 0;
      for (int lane = 0; lane < warp.lanes; ++lane) {
        if (warp.stops[lane] == Stop::kWaitsForPrevious) waiting |= 1u << lane;
      }
      Resume(warp, waiting);
    }
  }
  Thread* first = NextWarp();
  outcome_ = Outcome::kEnded;
  if (first != nullptr) {
    current_thread = first;
    threadIdx = first->index;
    first->fiber.SwitchFrom(host_);
  }
  if (outcome_ == Outcome::kEnded && !SharedGuardIntact()) {
    outcome_ = Outcome::kFailed;
    ReportFailure("kernel " + kernel_->name + ": memory past the end of the " +
                  std::to_string(kernel_->shared_bytes) + " bytes of shared memory was written");
  }
  current_block = nullptr;
  current_thread = nullptr;
  shared_memory = nullptr;
  return outcome_;
}

void Block::LeaveForHost(Outcome outcome) {
  outcome_ = outcome;
  host_.SwitchFrom(current_thread->fiber, /*for_good=*/outcome != Outcome::kWaitsForPrevious);
}

void Block::Complain(std::string_view message) {
  const uint3 t = threadIdx;
  ReportFailure("kernel " + kernel_->name + ", block " + Coordinates(index_.x, index_.y, index_.z) +
                ", thread " + Coordinates(t.x, t.y, t.z) + ": " + std::string(message));
}

void Block::Abandon() {
  LeaveForHost(Outcome::kFailed);
  std::abort();  // a failed block is never continued
}

// --- Scheduling of threads. ---

void Block::SwitchTo(Thread* next, bool for_good) {
  Thread* me = current_thread;
  if (next == me) return;
  current_thread = next;
  threadIdx = next->index;
  next->fiber.SwitchFrom(me->fiber, for_good);
}

void Block::Resume(Warp& warp, uint32_t lanes) {
  warp.state = Warp::State::kRuns;
  warp.running = lanes;
}

void Block::StopAt(Stop stop) {
  Thread& me = *current_thread;
  Warp& warp = *me.warp;
  warp.stops[me.lane] = stop;
  warp.running &= ~(1u << me.lane);
  Thread* next = warp.running != 0 ? &warp.threads[dice_->Pick(warp.running)] : FinishRound(warp);
  if (next != nullptr) {
    SwitchTo(next, /*for_good=*/stop == Stop::kEnded);
    return;
  }
  bool ended = true;
  for (int w = 0; w < warp_count_; ++w) ended &= warps_[w].state == Warp::State::kEnded;
  LeaveForHost(ended ? Outcome::kEnded : Outcome::kWaitsForPrevious);
}

// All lanes of the warp have stopped: runs their collective. Returns the thread to continue.
Thread* Block::FinishRound(Warp& warp) {
  const int lanes = warp.lanes;
  bool waits = false;
  bool same = true;
  for (int lane = 0; lane < lanes; ++lane) {
    waits |= warp.stops[lane] == Stop::kWaitsForPrevious;
    same &= warp.stops[lane] == warp.stops[0];
  }
  if (waits) {
    warp.state = Warp::State::kWaitsForPrevious;
    return NextWarp();
  }
  if (same && warp.stops[0] == Stop::kEnded) {
    warp.state = Warp::State::kEnded;
    return NextWarp();
  }
  for (int lane = 0; lane < lanes && same; ++lane) {
    same = warp.collectives[lane] == warp.collectives[0];
  }
  if (!same) {
    Complain("lanes of a warp went different ways: " + DescribeStops(warp));
    Abandon();
  }
  if (warp.collectives[0] == Collective::kSyncThreads) {
    warp.state = Warp::State::kAtBarrier;
    return NextWarp();
  }
  if (lanes != kLanes) {
    Complain(std::string(Name(warp.collectives[0])) + " in a warp of " + std::to_string(lanes) +
             " lanes");
    Abandon();
  }
  Perform(warp);
  warp.running = ~0u;
  return &warp.threads[dice_->Pick(~0u)];
}

// Returns a lane of a warp that can run; null if none can.
Thread* Block::NextWarp() {
  uint32_t runs = 0, at_barrier = 0, waits = 0;
  for (int w = 0; w < warp_count_; ++w) {
    const uint32_t bit = 1u << w;
    if (warps_[w].state == Warp::State::kRuns) runs |= bit;
    if (warps_[w].state == Warp::State::kAtBarrier) at_barrier |= bit;
    if (warps_[w].state == Warp::State::kWaitsForPrevious) waits |= bit;
  }
  if (runs == 0 && waits == 0 && at_barrier != 0) {
    if (std::popcount(at_barrier) != warp_count_) {
      Complain("SyncThreads is not reached by the whole block: " + DescribeWarps());
      Abandon();
    }
    for (int w = 0; w < warp_count_; ++w) Resume(warps_[w], warps_[w].all());
    races_.SyncThreads();
    runs = at_barrier;
  }
  if (runs == 0) return nullptr;
  Warp& warp = warps_[dice_->Pick(runs)];
  return &warp.threads[dice_->Pick(warp.running)];
}

std::string Block::DescribeStops(const Warp& warp) const {
  std::string text;
  for (int lane = 0; lane < warp.lanes; ++lane) {
    const char* what = warp.stops[lane] == Stop::kEnded ? "ended" : Name(warp.collectives[lane]);
    text += (lane == 0 ? "" : ", ") + std::to_string(lane) + " " + what;
  }
  return text;
}

std::string Block::DescribeWarps() const {
  std::string text;
  for (int w = 0; w < warp_count_; ++w) {
    text += (w == 0 ? "warp " : ", warp ") + std::to_string(w) + " " + Name(warps_[w].state);
  }
  return text;
}

void Block::Gather(Collective collective) {
  Warp& warp = *current_thread->warp;
  warp.collectives[current_thread->lane] = collective;
  StopAt(Stop::kAtCollective);
}

void Block::WaitForPrevious() {
  current_thread->waited_for_previous = true;
  if (!previous_ended_) StopAt(Stop::kWaitsForPrevious);
}

void Block::CheckShared(const void* from, size_t bytes, std::string_view what) {
  const auto* address = static_cast<const unsigned char*>(from);
  const auto offset = reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(shared_);
  if (offset >= kernel_->shared_bytes || bytes > kernel_->shared_bytes - offset) {
    Complain(std::string(what) + " outside of the block's shared memory, at byte " +
             std::to_string(static_cast<ptrdiff_t>(offset)) + " of " +
             std::to_string(kernel_->shared_bytes));
    Abandon();
  }
  if (offset % bytes != 0) {
    Complain(std::string(what) + " misaligned in shared memory, at byte " + std::to_string(offset));
    Abandon();
  }
}

}  // namespace tlm::simt::emulated
