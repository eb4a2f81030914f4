// The device memory behind the KV blocks: [block][layer][K, V][kv_head][64 tokens * head_dim], and
// where there are scales [64] after the elements of a head.
// What is in use of it lies together, however many layers there are.
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
  // Allocates num_blocks blocks. RESOURCE_EXHAUSTED when the device has too little memory.
  static absl::StatusOr<KvStorage> Create(Device& device, const KvShape& shape, int64_t num_blocks);

  KvLayer layer(int64_t index) const;
  // Keys and values of all layers, shape().bytes_per_block().
  std::byte* block(BlockId id) const {
    return buffer_.as<std::byte>() + static_cast<size_t>(id) * shape_.bytes_per_block();
  }
  const KvShape& shape() const { return shape_; }
  int64_t num_blocks() const { return num_blocks_; }
  size_t bytes() const { return buffer_.bytes(); }
  // Blocks up to this one are in use: in host memory, pages behind it are touched ahead (KvPages).
  void Reach(BlockId block);

 private:
  KvStorage(const KvShape& shape, int64_t num_blocks, Buffer buffer, bool on_host);

  KvShape shape_;
  int64_t num_blocks_;
  Buffer buffer_;
  BlockId furthest_ = -1;
  std::unique_ptr<KvPages> pages_;  // of buffer_; null where there is nothing to touch
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_KV_STORAGE_H_
