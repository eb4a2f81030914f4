// The race detector of the emulated GPU. It reports data races in kernels even if this run's order
// of threads gave the right result.
//
// Kernels are compiled with ThreadSanitizer's instrumentation, which calls a hook for every load
// and store; races.cc implements the hooks (library tlm_cuda_checked). What orders accesses is
// known from the functions of simt.h alone.
//
// Within a thread block, in shared memory: two accesses of different threads, at least one of them
// a store, must be ordered by SyncThreads, or within a warp by SyncWarp; two atomics do not race.
// Shuffles, ballots, LoadMatrices and atomics order nothing. CopyAsync16 stores from its call until
// the CopyAsyncWait of its thread.
//
// Between thread blocks of a kernel, in device memory: the storing side needs FenceDevice and then
// an atomic, the other side the same atomic and then FenceDevice. A load that comes before another
// block's store is not remembered; but the order of blocks is random, so either may come first.
//
// Between kernels: no kernel may load before WaitForPrevious what an earlier kernel stores.
#ifndef TLM_TESTS_SUPPORT_SIMT_RACES_H_
#define TLM_TESTS_SUPPORT_SIMT_RACES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace tlm::simt::emulated {

class Block;

// Whether a part of the program is instrumented; otherwise nothing is checked.
extern bool races_watched;

enum class AccessKind : uint8_t { kLoad, kStore, kAtomic, kCopyBegins, kCopyEnds };

// Who accesses: a thread, or its whole warp at once.
struct Accessor {
  uint16_t thread = 0;  // the warp's first where `whole_warp`
  uint16_t warp = 0;
  bool whole_warp = false;
};

// The accesses to a thread block's shared memory since its last barriers. For each 4-byte word it
// knows the last store, and who has loaded since.
class SharedRaces {
 public:
  void Begin(size_t bytes, int warps);
  void SyncThreads() { ++epoch_; }
  void SyncWarp(int warp) { ++warp_epochs_[warp]; }
  // The number of block barriers since the process began.
  uint32_t epoch() const { return epoch_; }
  // The race that the access to [offset, offset + bytes) makes, as text; empty if there is none.
  std::string Access(size_t offset, size_t bytes, AccessKind kind, const Accessor& by);

 private:
  struct Word {
    uint32_t stored = 0;  // epochs, as counted by SyncThreads
    uint32_t loaded = 0;
    uint32_t stored_warp = 0;  // epochs of the warp, as counted by SyncWarp
    uint32_t loaded_warp = 0;
    Accessor store;
    Accessor load;
    uint8_t store_mask = 0;  // bytes
    uint8_t load_mask = 0;
    bool atomic = false;
    bool in_flight = false;
    bool many_loads = false;  // loads of several warps
  };
  bool Ordered(uint32_t epoch, uint32_t warp_epoch, const Accessor& before,
               const Accessor& by) const;
  void NoteStore(Word& word, uint8_t mask, AccessKind kind, const Accessor& by) const;
  void NoteLoad(Word& word, uint8_t mask, const Accessor& by) const;

  std::vector<Word> words_;
  std::vector<uint32_t> warp_epochs_;
  uint32_t epoch_ = 1;
  uint32_t begun_ = 1;  // the epoch in which the block began
};

// Which stores of a block are released: those before barrier `epoch`, and all of `thread`.
struct Release {
  uint32_t epoch = 0;
  uint16_t thread = 0;
};
using Releases = std::map<uint32_t, Release>;  // by block

// The stores of the running kernel, by 4-byte words.
class KernelRaces {
 public:
  void Begin();

  struct Store {
    uint32_t block;
    uint32_t epoch;
    uint16_t thread;
  };
  // The store by another block to one of the bytes that `acquired` does not order; null if there is
  // none.
  const Store* Find(uintptr_t address, size_t bytes, uint32_t block,
                    const Releases& acquired) const;
  void Note(uintptr_t address, size_t bytes, const Store& store);
  // The releases of the atomics at an address.
  Releases& AtomicAt(uintptr_t address) { return atomics_[address]; }

 private:
  struct Word {
    uintptr_t word = 0;
    uint32_t kernel = 0;
    uint8_t mask = 0;
    Store store{};
  };
  static constexpr size_t kMinWords = 1 << 12;
  static size_t Place(uintptr_t word) { return word * 0x9e3779b97f4a7c15u >> 20; }
  Word& At(uintptr_t word);
  void Grow();

  std::vector<Word> words_ = std::vector<Word>(kMinWords);
  size_t used_ = 0;
  uint32_t kernel_ = 1;
  uintptr_t begin_ = ~uintptr_t{0};  // all stores lie in [begin_, end_)
  uintptr_t end_ = 0;
  std::unordered_map<uintptr_t, Releases> atomics_;
};

// Words that were loaded by blocks that began before earlier kernels had ended.
class EarlyLoads {
 public:
  void Note(const Block* block, uintptr_t address, size_t bytes);
  void Forget(const Block* block);
  // A block that has loaded one of the bytes; null: none has.
  const Block* Find(uintptr_t address, size_t bytes) const;
  bool empty() const { return words_.empty(); }

 private:
  std::unordered_map<uintptr_t, const Block*> words_;
};

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_RACES_H_
