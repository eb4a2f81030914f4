// Touches the pages of KV blocks before a step uses them.
#ifndef TLM_MODEL_KV_CACHE_KV_PAGES_H_
#define TLM_MODEL_KV_CACHE_KV_PAGES_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace tlm {

// The kernel zeroes a page when it is first touched; for a large page that takes milliseconds, and
// all layers reach a new page in the same step. A thread touches pages ahead, one after the other
// with pauses: up to kAhead bytes of each layer beyond the furthest block in use. Its priority is
// that of others, or it would come too late where all processors compute. It never changes the
// contents. Memory further ahead stays untouched. Thread-safe, and without locks: nothing waits
// for that thread.
class KvPages {
 public:
  static constexpr size_t kAhead = size_t{2} << 20;

  // `data`, host memory that outlives the object: `layers` times `layer_bytes`.
  KvPages(std::byte* data, int64_t layers, size_t layer_bytes);
  // Waits for at most one page.
  ~KvPages();

  // The first `bytes` of each layer are, or will soon be, in use.
  void Reach(size_t bytes);
  // Waits until all due pages have been touched; returns at once if the kernel is too old for it.
  void WaitUntilDone();

 private:
  static constexpr size_t kStop = SIZE_MAX;

  // Of each layer, once so much is in use.
  size_t DueFor(size_t reached) const;
  void Run();
  // Touches a piece of each layer. Up to where they are touched now, or need not be.
  size_t TouchLayers(size_t begin, size_t end);

  std::byte* const data_;
  const int64_t layers_;
  const size_t layer_bytes_;
  std::atomic<size_t> reached_ = 0;  // of each layer, in use: others touch it; kStop: ends
  std::atomic<size_t> touched_ = 0;  // of each layer, from its beginning
  std::thread thread_;               // last: uses the others
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_KV_PAGES_H_
