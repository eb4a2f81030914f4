// The process's heap: memory that is freed goes back to the system.
#ifndef TLM_SERVER_NET_HEAP_H_
#define TLM_SERVER_NET_HEAP_H_

#include <cstddef>
#include <cstdint>

namespace tlm {

// Allocations of so many bytes and more get pages of their own.
inline constexpr size_t kOwnPagesBytes = size_t{256} << 10;

// Once, before the first thread: large allocations get pages of their own and give them back to the
// system when they are freed, for as long as the process lives. Does nothing where the C library is
// not GNU's.
void SetUpAllocator();

// The allocator keeps freed memory in each of many arenas: several hundred megabytes after a storm
// of connections or of frames. Not thread-safe.
class HeapTrimmer {
 public:
  // Freed memory that the heap must have kept before a trim is worth its time.
  static constexpr int64_t kGrowthBytes = int64_t{32} << 20;
  // Polls without growth before a first and a second trim: freed memory may be reused soon.
  static constexpr int kFirstTrimPolls = 1;
  static constexpr int kSecondTrimPolls = 10;

  // Polled regularly with FreeHeapBytes(): whether to trim the heap. Growth counts from the first
  // poll.
  bool ShouldTrim(int64_t free_bytes);

 private:
  int64_t least_bytes_ = INT64_MAX;  // since it last was trimmed, or has not grown
  int quiet_polls_ =
      kSecondTrimPolls;  // since it has grown; kSecondTrimPolls: nothing is to be done
};

// Bytes of the heap that are free, returned to the system or not.
int64_t FreeHeapBytes();

// Returns the heap's free memory to the system. Allocations wait meanwhile, for some milliseconds.
void TrimHeap();

}  // namespace tlm

#endif  // TLM_SERVER_NET_HEAP_H_
