// Runs one thread block as fibers, each until it waits for others.
#ifndef TLM_TESTS_SUPPORT_SIMT_BLOCK_H_
#define TLM_TESTS_SUPPORT_SIMT_BLOCK_H_

#include <cuda_runtime.h>
#include <simt_emulated.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/simt/fiber.h"
#include "tests/support/simt/races.h"

namespace tlm::simt::emulated {

inline constexpr int kLanes = 32;
inline constexpr int kMaxThreads = 1024;
inline constexpr size_t kMaxSharedBytes = size_t{227} << 10;
inline constexpr size_t kPlainSharedBytes = size_t{48} << 10;

// The parameters of a launch.
struct Kernel {
  std::string name;
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  bool overlaps_previous = false;
  std::function<void()> run;
};

// A small random generator for the order in which things happen.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {}
  // Picks one of the bits of `set`, which is not empty.
  int Pick(uint32_t set) {
    const int first = static_cast<int>(Next() >> 59);
    return (std::countr_zero(std::rotr(set, first)) + first) & 31;
  }
  uint64_t Below(uint64_t limit) { return (Next() >> 11) % limit; }

 private:
  uint64_t Next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  uint64_t state_;
};

// A copy to shared memory that has begun. If the previous kernel has not ended, it reads its source
// as early as possible, otherwise as late as possible.
struct PendingCopy {
  unsigned char* shared;
  const unsigned char* global;
  bool valid;
  bool early = false;
  std::array<unsigned char, 16> bytes = {};  // data of an early copy
};

// The copies that one thread began, in the groups that it closed.
class CopyQueue {
 public:
  void Add(const PendingCopy& copy) { copies_.push_back(copy); }
  void Commit() { group_ends_.push_back(copies_.size()); }
  // Completes all groups but the newest `pending`.
  void Wait(size_t pending);
  bool empty() const { return landed_ == copies_.size(); }
  void Clear();

 private:
  std::vector<PendingCopy> copies_;
  std::vector<size_t> group_ends_;
  size_t landed_ = 0;  // completed copies
  size_t landed_groups_ = 0;
};

// The reason why a lane is not running.
enum class Stop : uint8_t { kAtCollective, kWaitsForPrevious, kEnded };

struct Warp;
struct Thread {
  Fiber fiber;
  Warp* warp = nullptr;
  int lane = 0;
  uint16_t number = 0;  // index in the block
  uint3 index;
  bool waited_for_previous = false;
  CopyQueue copies;
  // The stores that the last FenceDevice releases with the next atomic (epoch 0: there was no
  // fence), and the releases of others that its atomics have read and the next FenceDevice
  // acquires.
  Release fence;
  Releases acquiring;
};

// A lane's operands of a collective. Pointers refer to objects on its suspended stack.
struct Operands {
  void* out;
  const void* first;
  const void* second;
};

struct Warp {
  enum class State : uint8_t { kRuns, kAtBarrier, kWaitsForPrevious, kEnded };

  Thread* threads = nullptr;
  int lanes = 0;
  State state = State::kRuns;
  uint32_t running = 0;  // lanes that have not stopped yet
  int bank = 0;          // index into `values` for the current collective
  Stop stops[kLanes];
  Collective collectives[kLanes];  // valid where stops[lane] is kAtCollective
  uint64_t values[2][kLanes];
  Operands operands[kLanes];

  uint32_t all() const { return lanes == kLanes ? ~0u : (1u << lanes) - 1; }
};

// Runs blocks one at a time. Reusable, because stacks are expensive. Only one host thread may use
// it at a time.
class Block {
 public:
  enum class Outcome { kEnded, kWaitsForPrevious, kFailed };

  Block();
  ~Block();

  // Prepares to run block `index` of `kernel`, which must outlive the run. Unless `previous_ended`,
  // threads block in WaitForPrevious.
  void Begin(const Kernel& kernel, uint3 index, bool previous_ended);
  void PreviousEnded() { previous_ended_ = true; }
  bool previous_ended() const { return previous_ended_; }
  // True if a thread has called LetNextStart.
  bool lets_next_start() const { return lets_next_start_; }
  // Runs until all threads have ended, or none can continue before PreviousEnded().
  Outcome Run(Dice& dice);

  // The running thread calls these; see simt_emulated.h.
  void Gather(Collective collective);
  void WaitForPrevious();
  void LetNextStart() { lets_next_start_ = true; }
  // Reports an error of the running thread; Abandon must follow. (These are two calls because the
  // objects of an abandoned function are not destroyed, and messages are built in parts.)
  void Complain(std::string_view message);
  [[noreturn]] void Abandon();
  // Complains and abandons unless [from, from + bytes) is within the block's shared memory and
  // aligned to `bytes`.
  void CheckShared(const void* from, size_t bytes, std::string_view what);

  // These check the running thread's access for races (races.h). The first function is for shared
  // memory.
  void AccessShared(const void* at, size_t bytes, AccessKind kind, bool whole_warp = false);
  void AccessGlobal(const void* at, size_t bytes, bool stores);
  void Atomic(const void* at, size_t bytes);
  void FenceDevice();
  size_t shared_bytes() const { return kernel_->shared_bytes; }
  const std::string& kernel_name() const { return kernel_->name; }

 private:
  static void ThreadEntry();
  void EnsureThreads(int count);
  void StopAt(Stop stop);
  void SwitchTo(Thread* next, bool for_good);
  Thread* FinishRound(Warp& warp);
  Thread* NextWarp();
  void Resume(Warp& warp, uint32_t lanes);
  void Perform(Warp& warp);
  std::string DescribeStops(const Warp& warp) const;
  std::string DescribeWarps() const;
  void LeaveForHost(Outcome outcome);
  void PrepareSharedMemory(size_t bytes);
  bool SharedGuardIntact() const;
  Accessor Running() const;

  const Kernel* kernel_ = nullptr;
  Dice* dice_ = nullptr;
  uint3 index_;
  bool previous_ended_ = true;
  bool lets_next_start_ = false;
  bool waited_ = false;        // a thread that called WaitForPrevious has ended
  bool never_waited_ = false;  // a thread that did not call it has ended
  Outcome outcome_ = Outcome::kEnded;
  Thread* running_ = nullptr;  // Run continues with this thread; null: choose a warp
  int warp_count_ = 0;
  std::vector<std::unique_ptr<Thread[]>> threads_;  // one array per warp
  std::vector<Warp> warps_;
  Fiber host_;
  unsigned char* shared_ = nullptr;
  SharedRaces races_;
  uint32_t number_ = 0;  // index in the grid
  Releases acquired_;    // releases of other blocks
};

// The block whose thread is running, and this thread; null outside kernels.
extern Block* current_block;
extern Thread* current_thread;

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_BLOCK_H_
