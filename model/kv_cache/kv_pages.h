// Touches the pages of KV blocks before a step uses them.
#ifndef TLM_MODEL_KV_CACHE_KV_PAGES_H_
#define TLM_MODEL_KV_CACHE_KV_PAGES_H_

#include <atomic>
#include <cstddef>
#include <thread>

namespace tlm {

// The kernel zeroes a page when it is first touched; many sequences reach new blocks in the same
// step. A thread touches pages ahead, one after the other with pauses: beyond the furthest block in
// use a quarter as much again in whole pieces, at most kMaxAheadBytes. Its priority is that of
// others, or it would come too late where all processors compute. It never changes the contents.
// Memory further ahead stays untouched. Thread-safe, and without locks: nothing waits for that
// thread.
class KvPages {
 public:
  static constexpr size_t kMaxAheadBytes = size_t{64} << 20;
  // Touched at a time: a large page.
  static constexpr size_t kPieceBytes = size_t{2} << 20;

  // `data`, host memory that outlives the object.
  KvPages(std::byte* data, size_t bytes);
  // Waits for at most one page.
  ~KvPages();

  // The first `bytes` are, or will soon be, in use.
  void Reach(size_t bytes);
  // Waits until all due pages have been touched; returns at once if the kernel is too old for it.
  void WaitUntilDone();

 private:
  static constexpr size_t kStop = SIZE_MAX;

  // Once so much is in use.
  size_t DueFor(size_t reached) const;
  void Run();
  // Touches a piece. Up to where memory is touched now, or need not be.
  size_t TouchPiece(size_t begin, size_t end) const;

  std::byte* const data_;
  const size_t bytes_;
  std::atomic<size_t> reached_ = 0;  // in use: others touch it; kStop: ends
  std::atomic<size_t> touched_ = 0;  // from the beginning
  std::thread thread_;               // last: uses the others
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_KV_PAGES_H_
