// Memory that was of use for a while goes back to the system.
#ifndef TLM_SERVER_HEAP_TRIMMER_H_
#define TLM_SERVER_HEAP_TRIMMER_H_

#include <cstdint>

namespace tlm {

// The allocator keeps what was freed, in each of many arenas: after a storm of connections or of
// frames several hundred megabytes that nobody uses. Not thread-safe.
class HeapTrimmer {
 public:
  // What the process has to grow by before it is worth looking after.
  static constexpr int64_t kGrowthBytes = int64_t{32} << 20;
  // Looks without growth before a first and a second trim: what it grew for may last a little.
  static constexpr int kQuietLooks = 3;
  static constexpr int kLateLooks = 10;

  // To be asked regularly with what the process has in memory now: whether to trim the heap. What
  // is left then is where growth counts from.
  bool ShouldTrim(int64_t resident_bytes);

 private:
  int64_t least_bytes_ = INT64_MAX;  // since it last was trimmed, or has not grown
  int quiet_looks_ = kLateLooks;     // since it has grown; kLateLooks: nothing is to be done
};

// Gives back what the heap has no use for. Takes some milliseconds of whoever needs memory then.
void TrimHeap();

}  // namespace tlm

#endif  // TLM_SERVER_HEAP_TRIMMER_H_
