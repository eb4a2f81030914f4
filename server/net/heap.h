// Makes the process's heap return freed memory to the system.
#ifndef TLM_SERVER_NET_HEAP_H_
#define TLM_SERVER_NET_HEAP_H_

#include <cstddef>
#include <cstdint>

namespace tlm {

// Allocations of at least this many bytes get pages of their own.
inline constexpr size_t kOwnPagesBytes = size_t{256} << 10;

// Call once, before the first thread. From then on large allocations get pages of their own and
// return them to the system when they are freed. Does nothing with a C library other than GNU's.
void SetUpAllocator();

// Decides when to trim the heap. The allocator retains freed memory in each of many arenas: several
// hundred megabytes after many connections or frames at once. Not thread-safe.
class HeapTrimmer {
 public:
  // A trim is worth its time once the heap's free memory has grown by this much.
  static constexpr int64_t kGrowthBytes = int64_t{32} << 20;
  // Polls without growth before a first and a second trim: freed memory may be reused soon.
  static constexpr int kFirstTrimPolls = 1;
  static constexpr int kSecondTrimPolls = 10;

  // Returns whether to trim the heap. Call regularly with FreeHeapBytes(). Growth counts from the
  // first poll.
  bool ShouldTrim(int64_t free_bytes);

 private:
  int64_t least_bytes_ = INT64_MAX;     // since the last trim, or since it last grew
  int quiet_polls_ = kSecondTrimPolls;  // since it last grew; kSecondTrimPolls: nothing to do
};

// Returns the free bytes of the heap, returned to the system or not.
int64_t FreeHeapBytes();

// Returns the heap's free memory to the system. Allocations are blocked meanwhile, for some
// milliseconds.
void TrimHeap();

}  // namespace tlm

#endif  // TLM_SERVER_NET_HEAP_H_
