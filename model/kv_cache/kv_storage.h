// The device memory of the KV blocks: [block][layer][K, V][kv_head][64 tokens * head_dim]; types
// with scales have [64] after the elements of a head. Used memory is contiguous, however many
// layers there are.
#ifndef TLM_MODEL_KV_CACHE_KV_STORAGE_H_
#define TLM_MODEL_KV_CACHE_KV_STORAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "model/kv_cache/block_pool.h"
#include "model/ops/device.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"

namespace tlm {

// The kernel zeroes a page when it is first touched, and many sequences reach new blocks in the
// same step. A thread therefore touches pages ahead of the furthest used block, one after the other
// with pauses: a quarter of the used memory in whole pieces, at most kMaxAheadBytes. It has normal
// priority; a lower one would come too late when all processors compute. It never changes the
// contents. Memory further ahead stays untouched. Thread-safe and lock-free: nothing waits for that
// thread.
class KvPages {
 public:
  static constexpr size_t kMaxAheadBytes = size_t{64} << 20;
  // The thread touches this much at a time: a large page.
  static constexpr size_t kPieceBytes = size_t{2} << 20;

  // `data` is host memory that outlives the object.
  KvPages(std::byte* data, size_t bytes);
  // Waits for at most one page.
  ~KvPages();

  // The first `bytes` are in use now or soon.
  void Reach(size_t bytes);
  // Waits until all due pages have been touched; returns at once if the kernel is too old for it.
  void WaitUntilDone();

 private:
  static constexpr size_t kStop = SIZE_MAX;

  // Returns the end of the memory to touch once `reached` bytes are in use.
  size_t DueFor(size_t reached) const;
  void Run();
  // Touches a piece. Returns the end of the memory that is now touched or need not be.
  size_t TouchPiece(size_t begin, size_t end) const;

  std::byte* const data_;
  const size_t bytes_;
  std::atomic<size_t> reached_ = 0;  // bytes in use, which others touch; kStop ends the thread
  std::atomic<size_t> touched_ = 0;  // bytes touched from the beginning
  std::thread thread_;               // last, because it uses the other fields
};

// The shape and element type of one token's keys and values.
struct KvShape {
  int64_t num_layers = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  DType dtype = DType::kF32;

  size_t bytes_per_token() const {
    return static_cast<size_t>(2 * num_layers * num_kv_heads) * KvRowBytes(dtype, head_dim);
  }
  size_t bytes_per_block() const { return bytes_per_token() * kBlockTokens; }
};

// Move-only; the device outlives it. Only the engine thread reads and writes the contents.
class KvStorage {
 public:
  // Allocates num_blocks blocks. Returns RESOURCE_EXHAUSTED if the device has too little memory.
  static absl::StatusOr<KvStorage> Create(Device& device, const KvShape& shape, int64_t num_blocks);

  KvLayer layer(int64_t index) const;
  // The keys and values of all layers, shape().bytes_per_block() bytes.
  std::byte* block(BlockId id) const {
    return buffer_.as<std::byte>() + static_cast<size_t>(id) * shape_.bytes_per_block();
  }
  const KvShape& shape() const { return shape_; }
  int64_t num_blocks() const { return num_blocks_; }
  size_t bytes() const { return buffer_.bytes(); }
  // Blocks up to this one are in use: pages after it are touched ahead in host memory (KvPages).
  void Reach(BlockId block);

 private:
  KvStorage(const KvShape& shape, int64_t num_blocks, Buffer buffer, bool on_host);

  KvShape shape_;
  int64_t num_blocks_;
  Buffer buffer_;
  BlockId furthest_ = -1;
  std::unique_ptr<KvPages> pages_;  // for buffer_; null if nothing needs touching
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_KV_STORAGE_H_
