// Races that no order of threads need show: kernels are compiled with the calls that
// ThreadSanitizer's instrumentation makes for every load and store (races.cc has them), and what is
// ordered is told by the functions of simt.h alone.
//
// Within a block, of shared memory: two accesses of different threads, one of them a store, are
// ordered by SyncThreads, within a warp by SyncWarp. Shuffles, ballots, LoadMatrices and atomics
// order nothing. CopyAsync16 stores from its call to its thread's CopyAsyncWait.
//
// Between blocks of a kernel, of the device's memory: by FenceDevice and an atomic after the store,
// the same atomic and FenceDevice before the other access. Loads that come before a store of
// another block are not remembered; the order of blocks is drawn, so either may come first.
//
// Between kernels: what one loads before WaitForPrevious none of those before it stores.
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

// Whether a part of the program tells its loads and stores: otherwise nothing is looked at.
extern bool races_watched;

enum class AccessKind : uint8_t { kLoad, kStore, kAtomic, kCopyBegins, kCopyEnds };

// Who accesses: a thread of a block, or its whole warp at once.
struct Accessor {
  uint16_t thread = 0;  // the warp's first where `whole_warp`
  uint16_t warp = 0;
  bool whole_warp = false;
};

// The accesses to a block's shared memory since its last barriers. Of a word of 4 bytes the last
// store is known, and who has loaded since.
class SharedRaces {
 public:
  void Begin(size_t bytes, int warps);
  void SyncThreads() { ++epoch_; }
  void SyncWarp(int warp) { ++warp_epochs_[static_cast<size_t>(warp)]; }
  // Barriers of all threads since the process began.
  uint32_t epoch() const { return epoch_; }
  // What is wrong with the access to [offset, offset + bytes), empty if nothing is.
  std::string Access(size_t offset, size_t bytes, AccessKind kind, const Accessor& by);

 private:
  struct Word {
    uint32_t stored = 0;  // epochs
    uint32_t loaded = 0;
    uint32_t stored_warp = 0;  // the warp's epochs
    uint32_t loaded_warp = 0;
    Accessor store;
    Accessor load;
    uint8_t store_mask = 0;  // bytes
    uint8_t load_mask = 0;
    bool atomic = false;
    bool in_flight = false;
    bool many_loads = false;  // of several warps
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

// How far a block's stores may be seen: those before barrier `epoch`, and all of `thread`.
struct Release {
  uint32_t epoch = 0;
  uint16_t thread = 0;
};
using Releases = std::map<uint32_t, Release>;  // by block

// The stores of the kernel that is running, by words of 4 bytes.
class KernelRaces {
 public:
  void Begin();

  struct Store {
    uint32_t block;
    uint32_t epoch;
    uint16_t thread;
  };
  // The store of another block to one of the bytes that `acquired` does not order; null if none is.
  const Store* Find(uintptr_t address, size_t bytes, uint32_t block,
                    const Releases& acquired) const;
  void Note(uintptr_t address, size_t bytes, const Store& store);
  // What the atomics at an address have released.
  Releases& AtomicAt(uintptr_t address) { return atomics_[address]; }

 private:
  struct Word {
    uintptr_t word = 0;
    uint32_t kernel = 0;
    uint8_t mask = 0;
    Store store{};
  };
  static constexpr size_t kLeastWords = 1 << 12;
  static size_t Place(uintptr_t word) { return word * 0x9e3779b97f4a7c15u >> 20; }
  Word& At(uintptr_t word);
  void Grow();

  std::vector<Word> words_ = std::vector<Word>(kLeastWords);
  size_t used_ = 0;
  uint32_t kernel_ = 1;
  uintptr_t begin_ = ~uintptr_t{0};  // all stores lie in [begin_, end_)
  uintptr_t end_ = 0;
  std::unordered_map<uintptr_t, Releases> atomics_;
};

// Words that blocks have loaded which began before the kernels ahead of theirs had ended.
class EarlyLoads {
 public:
  void Note(const Block* block, uintptr_t address, size_t bytes);
  void Forget(const Block* block);
  // The block that has loaded one of the bytes; null: none.
  const Block* Find(uintptr_t address, size_t bytes) const;
  bool empty() const { return words_.empty(); }

 private:
  std::unordered_map<uintptr_t, const Block*> words_;
};

}  // namespace tlm::simt::emulated

#endif  // TLM_TESTS_SUPPORT_SIMT_RACES_H_
