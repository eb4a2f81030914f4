// Touches the pages of KV blocks before a step uses them.
#ifndef TLM_MODEL_KV_CACHE_KV_PAGES_H_
#define TLM_MODEL_KV_CACHE_KV_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <thread>

#include "model/base/mutex.h"

namespace tlm {

// The kernel zeroes a page when it is first touched; for a large page that takes milliseconds, and
// all layers reach a new page in the same step. A thread of the lowest priority touches pages
// ahead: up to kAhead bytes of each layer beyond the furthest block in use. It never changes their
// contents. Memory further ahead stays untouched. Thread-safe.
class KvPages {
 public:
  static constexpr size_t kAhead = size_t{2} << 20;

  // `data`, host memory that outlives the object: `layers` times `layer_bytes`.
  KvPages(std::byte* data, int64_t layers, size_t layer_bytes);
  // Waits for a page at most.
  ~KvPages();

  // The first `bytes` of each layer are in use, or about to be.
  void Reach(size_t bytes);
  // Until what is due now has been touched, or cannot be: the kernel is too old.
  void WaitUntilDone();

 private:
  void Run();

  std::byte* const data_;
  const int64_t layers_;
  const size_t layer_bytes_;
  Mutex mutex_;
  CondVar changed_;
  size_t due_ TLM_GUARDED_BY(mutex_) = 0;      // of each layer
  size_t reached_ TLM_GUARDED_BY(mutex_) = 0;  // in use: others have touched them
  size_t touched_ TLM_GUARDED_BY(mutex_) = 0;
  bool stopped_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_KV_PAGES_H_
