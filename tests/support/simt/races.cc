#include "tests/support/simt/races.h"

#include <algorithm>
#include <utility>

#include "tests/support/simt/block.h"
#include "tests/support/simt/device.h"

namespace tlm::simt::emulated {

bool races_watched = false;

namespace {

constexpr size_t kWordBytes = 4;

// Calls visit(word, mask of its bytes) for the words of [begin, begin + bytes).
template <typename Visit>
void ForWords(uintptr_t begin, size_t bytes, Visit visit) {
  const uintptr_t end = begin + bytes;
  for (uintptr_t word = begin / kWordBytes; word * kWordBytes < end; ++word) {
    const uintptr_t at = word * kWordBytes;
    const auto from = std::max(begin, at) - at;
    const auto to = std::min(end, at + kWordBytes) - at;
    visit(word, static_cast<uint8_t>((1u << to) - (1u << from)));
  }
}

const char* Verb(AccessKind kind) {
  switch (kind) {
    case AccessKind::kLoad:
      return "loads";
    case AccessKind::kStore:
      return "stores to";
    case AccessKind::kAtomic:
      return "changes";
    case AccessKind::kCopyBegins:
    case AccessKind::kCopyEnds:
      return "copies to";
  }
  return "?";
}

std::string Describe(AccessKind kind, size_t byte, const char* did, const Accessor& other) {
  const std::string who = other.whole_warp ? "warp " + std::to_string(other.warp)
                                           : "thread " + std::to_string(other.thread);
  return std::string(Verb(kind)) + " byte " + std::to_string(byte) + " of shared memory, which " +
         who + " " + did + " without a barrier between";
}

}  // namespace

// --- Shared memory. ---

void SharedRaces::Begin(size_t bytes, int warps) {
  begun_ = ++epoch_;
  const size_t words = (bytes + kWordBytes - 1) / kWordBytes;
  if (words_.size() < words) words_.resize(words);
  if (warp_epochs_.size() < static_cast<size_t>(warps)) {
    warp_epochs_.resize(warps);
  }
}

bool SharedRaces::Ordered(uint32_t epoch, uint32_t warp_epoch, const Accessor& before,
                          const Accessor& by) const {
  if (epoch != epoch_) return true;
  if (before.thread == by.thread && !before.whole_warp && !by.whole_warp) return true;
  return before.warp == by.warp && warp_epoch != warp_epochs_[by.warp];
}

std::string SharedRaces::Access(size_t offset, size_t bytes, AccessKind kind, const Accessor& by) {
  std::string fault;
  ForWords(offset, bytes, [&](uintptr_t at, uint8_t mask) {
    Word& word = words_[at];
    // The usual case has nothing new.
    if (kind == AccessKind::kLoad && word.many_loads && word.loaded == epoch_ &&
        word.stored != epoch_ && !word.in_flight && (mask & ~word.load_mask) == 0) {
      return;
    }
    const size_t byte = at * kWordBytes;
    const bool stored = word.stored >= begun_ && (word.store_mask & mask) != 0;
    const bool loaded = word.loaded == epoch_ && (word.load_mask & mask) != 0;
    if (kind != AccessKind::kCopyEnds && stored && word.in_flight) {
      fault = Describe(kind, byte, "has begun to copy to,", word.store);
    } else if (stored && !(kind == AccessKind::kAtomic && word.atomic) &&
               !Ordered(word.stored, word.stored_warp, word.store, by)) {
      fault = Describe(kind, byte, "stored to", word.store);
    } else if (kind != AccessKind::kLoad && loaded &&
               (word.many_loads || !Ordered(word.loaded, word.loaded_warp, word.load, by))) {
      fault = Describe(kind, byte, "loaded", word.load);
    } else if (kind == AccessKind::kLoad) {
      NoteLoad(word, mask, by);
    } else {
      NoteStore(word, mask, kind, by);
    }
  });
  return fault;
}

void SharedRaces::NoteStore(Word& word, uint8_t mask, AccessKind kind, const Accessor& by) const {
  const bool more = word.stored == epoch_ && word.store.thread == by.thread;
  word.store_mask = more ? word.store_mask | mask : mask;
  word.stored = epoch_;
  word.stored_warp = warp_epochs_[by.warp];
  word.store = by;
  word.atomic = kind == AccessKind::kAtomic;
  word.in_flight = kind == AccessKind::kCopyBegins;
}

void SharedRaces::NoteLoad(Word& word, uint8_t mask, const Accessor& by) const {
  const uint32_t warp_epoch = warp_epochs_[by.warp];
  if (word.loaded != epoch_) {
    word.loaded = epoch_;
    word.loaded_warp = warp_epoch;
    word.load = by;
    word.load_mask = mask;
    word.many_loads = false;
    return;
  }
  word.load_mask |= mask;
  if (word.load.warp != by.warp) {
    word.many_loads = true;
  } else if (word.loaded_warp != warp_epoch) {
    word.loaded_warp = warp_epoch;
    word.load = by;
  } else if (word.load.thread != by.thread) {
    word.load.whole_warp = true;
  }
}

// --- The device's memory. ---

void KernelRaces::Begin() {
  ++kernel_;
  used_ = 0;
  begin_ = ~uintptr_t{0};
  end_ = 0;
  atomics_.clear();
}

KernelRaces::Word& KernelRaces::At(uintptr_t word) {
  size_t place = Place(word) & (words_.size() - 1);
  while (words_[place].kernel == kernel_ && words_[place].word != word) {
    place = (place + 1) & (words_.size() - 1);
  }
  return words_[place];
}

void KernelRaces::Grow() {
  std::vector<Word> old(2 * words_.size());
  old.swap(words_);
  for (const Word& word : old) {
    if (word.kernel == kernel_) At(word.word) = word;
  }
}

const KernelRaces::Store* KernelRaces::Find(uintptr_t address, size_t bytes, uint32_t block,
                                            const Releases& acquired) const {
  const Store* found = nullptr;
  if (address >= end_ || address + bytes <= begin_) return found;
  ForWords(address, bytes, [&](uintptr_t at, uint8_t mask) {
    const Word& word = const_cast<KernelRaces*>(this)->At(at);
    if (word.kernel != kernel_ || (word.mask & mask) == 0 || word.store.block == block) return;
    const auto release = acquired.find(word.store.block);
    const bool ordered =
        release != acquired.end() &&
        (word.store.epoch < release->second.epoch || (word.store.epoch == release->second.epoch &&
                                                      word.store.thread == release->second.thread));
    if (!ordered && !atomics_.contains(address)) found = &word.store;
  });
  return found;
}

void KernelRaces::Note(uintptr_t address, size_t bytes, const Store& store) {
  begin_ = std::min(begin_, address);
  end_ = std::max(end_, address + bytes);
  ForWords(address, bytes, [&](uintptr_t at, uint8_t mask) {
    if (2 * used_ >= words_.size()) Grow();
    Word& word = At(at);
    if (word.kernel != kernel_) {
      word = {.word = at, .kernel = kernel_};
      ++used_;
    }
    const bool more = word.store.block == store.block && word.store.epoch == store.epoch &&
                      word.store.thread == store.thread;
    word.mask = more ? word.mask | mask : mask;
    word.store = store;
  });
}

void EarlyLoads::Note(const Block* block, uintptr_t address, size_t bytes) {
  ForWords(address, bytes, [&](uintptr_t at, uint8_t) { words_[at] = block; });
}

void EarlyLoads::Forget(const Block* block) {
  if (words_.empty()) return;
  std::erase_if(words_, [block](const auto& word) { return word.second == block; });
}

const Block* EarlyLoads::Find(uintptr_t address, size_t bytes) const {
  const Block* block = nullptr;
  ForWords(address, bytes, [&](uintptr_t at, uint8_t) {
    const auto found = words_.find(at);
    if (found != words_.end()) block = found->second;
  });
  return block;
}

// --- Accesses of a thread. ---

Accessor Block::Running() const {
  return {.thread = current_thread->number,
          .warp = static_cast<uint16_t>(current_thread->number / kLanes)};
}

void Block::AccessShared(const void* at, size_t bytes, AccessKind kind, bool whole_warp) {
  if (!races_watched) return;
  Accessor by = Running();
  by.whole_warp = whole_warp;
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(at) - shared_);
  const std::string fault = races_.Access(offset, bytes, kind, by);
  if (fault.empty()) return;
  Complain(fault);
  Abandon();
}

void Block::AccessGlobal(const void* at, size_t bytes, bool stores) {
  if (!races_watched) return;
  Device& device = TheDevice();
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (stores && kernel_->overlaps_previous && !current_thread->waited_for_previous) {
    Complain("stores to the device's memory before WaitForPrevious");
    Abandon();
  }
  if (!previous_ended_) return device.early_loads.Note(this, address, bytes);
  if (const auto* other = device.kernel_races.Find(address, bytes, number_, acquired_)) {
    Complain(std::string(stores ? "stores to" : "loads") + " what thread " +
             std::to_string(other->thread) + " of block number " + std::to_string(other->block) +
             " stored, without FenceDevice and an atomic of both between");
    Abandon();
  }
  if (!stores) return;
  device.kernel_races.Note(address, bytes, {number_, races_.epoch(), current_thread->number});
  const Block* const early =
      device.early_loads.empty() ? nullptr : device.early_loads.Find(address, bytes);
  if (early == nullptr) return;
  Complain("stores what kernel " + early->kernel_->name + " has loaded before WaitForPrevious");
  Abandon();
}

namespace {

void Merge(const Releases& from, Releases& to) {
  for (const auto& [block, release] : from) {
    Release& known = to[block];
    if (release.epoch >= known.epoch) known = release;
  }
}

}  // namespace

void Block::Atomic(const void* at, size_t bytes) {
  if (!races_watched) return;
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(at) - shared_);
  if (offset < kernel_->shared_bytes) return AccessShared(at, bytes, AccessKind::kAtomic);
  Releases& released = TheDevice().kernel_races.AtomicAt(reinterpret_cast<uintptr_t>(at));
  Merge(released, current_thread->acquiring);
  if (current_thread->fence.epoch > 0) Merge({{number_, current_thread->fence}}, released);
}

void Block::FenceDevice() {
  current_thread->fence = {races_.epoch(), current_thread->number};
  Merge(current_thread->acquiring, acquired_);
}

// --- Loads and stores of kernels' code. ---

namespace {

inline void Access(const void* at, size_t bytes, bool stores) {
  if (current_block == nullptr) return;
  const auto offset = static_cast<size_t>(static_cast<const unsigned char*>(at) - shared_memory);
  if (offset < current_block->shared_bytes()) {
    current_block->AccessShared(at, bytes, stores ? AccessKind::kStore : AccessKind::kLoad);
    return;
  }
  // A thread's own stack.
  const auto above = static_cast<size_t>(static_cast<const char*>(at) -
                                         static_cast<const char*>(__builtin_frame_address(0)));
  if (above < size_t{128} << 10) return;
  current_block->AccessGlobal(at, bytes, stores);
}

}  // namespace
}  // namespace tlm::simt::emulated

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TLM_THREAD_SANITIZER 1
#endif
#endif

#if !defined(__SANITIZE_THREAD__) && !defined(TLM_THREAD_SANITIZER)

// NOLINTBEGIN: names that compilers know
extern "C" {
#define TLM_ACCESSES(bytes)                                                                      \
  void __tsan_read##bytes(void* at) { tlm::simt::emulated::Access(at, bytes, false); }           \
  void __tsan_write##bytes(void* at) { tlm::simt::emulated::Access(at, bytes, true); }           \
  void __tsan_unaligned_read##bytes(void* at) { tlm::simt::emulated::Access(at, bytes, false); } \
  void __tsan_unaligned_write##bytes(void* at) { tlm::simt::emulated::Access(at, bytes, true); }
TLM_ACCESSES(1)
TLM_ACCESSES(2)
TLM_ACCESSES(4)
TLM_ACCESSES(8)
TLM_ACCESSES(16)
#undef TLM_ACCESSES
void __tsan_read_range(void* at, size_t bytes) { tlm::simt::emulated::Access(at, bytes, false); }
void __tsan_write_range(void* at, size_t bytes) { tlm::simt::emulated::Access(at, bytes, true); }
void __tsan_init() { tlm::simt::emulated::races_watched = true; }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// The host's objects use this one.
int __tsan_atomic32_fetch_add(volatile int* at, int value, int) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
int __tsan_atomic32_fetch_sub(volatile int* at, int value, int) {
  return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);
}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
// NOLINTEND

#endif
