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

// The allocator keeps what was freed, in each of many arenas: after a storm of connections or of
// frames several hundred megabytes that nobody uses. Not thread-safe.
class HeapTrimmer {
 public:
  // What has to be freed, and kept by the heap, before it is worth looking after.
  static constexpr int64_t kGrowthBytes = int64_t{32} << 20;
  // Looks without growth before a first and a second trim: what was freed may be wanted again.
  static constexpr int kQuietLooks = 1;
  static constexpr int kLateLooks = 10;

  // To be asked regularly with FreeHeapBytes(): whether to trim the heap. Growth counts from there.
  bool ShouldTrim(int64_t free_bytes);

 private:
  int64_t least_bytes_ = INT64_MAX;  // since it last was trimmed, or has not grown
  int quiet_looks_ = kLateLooks;     // since it has grown; kLateLooks: nothing is to be done
};

// What the heap has of no use to anybody, whether or not it was given back to the system.
int64_t FreeHeapBytes();

// Gives back what the heap has no use for. Takes some milliseconds of whoever needs memory then.
void TrimHeap();

}  // namespace tlm

#endif  // TLM_SERVER_NET_HEAP_H_
