// Which KV blocks are free, and how many owners each of the others has. Ids only: the memory is
// KvStorage's.
#ifndef TLM_MODEL_KV_CACHE_BLOCK_POOL_H_
#define TLM_MODEL_KV_CACHE_BLOCK_POOL_H_

#include <cstdint>
#include <vector>

namespace tlm {

using BlockId = int32_t;

// Not thread-safe: the engine thread owns it. Invariant: free_blocks() + blocks with a reference ==
// total_blocks().
class BlockPool {
 public:
  explicit BlockPool(int64_t total_blocks);

  // Takes `count` blocks with one reference each and appends their ids to `blocks`. False, and
  // nothing is taken, when fewer are free.
  [[nodiscard]] bool Allocate(int64_t count, std::vector<BlockId>* blocks);

  // One more owner of a block that has one.
  void AddReference(BlockId block);
  // One owner less; the last one frees the block.
  void Release(BlockId block);

  int64_t total_blocks() const { return static_cast<int64_t>(references_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t used_blocks() const { return total_blocks() - free_blocks(); }

 private:
  std::vector<int32_t> references_;  // by block id; 0 = free
  std::vector<BlockId> free_;        // taken from the back
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_BLOCK_POOL_H_
