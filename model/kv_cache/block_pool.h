// Allocates KV blocks and counts their users, including blocks that the prefix cache keeps. Handles
// block ids only; KvStorage owns the memory.
#ifndef TLM_MODEL_KV_CACHE_BLOCK_POOL_H_
#define TLM_MODEL_KV_CACHE_BLOCK_POOL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace tlm {

using BlockId = int32_t;

// Owns the kept blocks (PrefixCache). The pool's functions call it.
class BlockKeeper {
 public:
  virtual ~BlockKeeper() = default;
  // Called when a kept block has lost its last user (it is idle), or has a user again.
  virtual void OnIdle(BlockId block) = 0;
  virtual void OnUsed(BlockId block) = 0;
  // Chooses the idle block to evict, which is then no longer kept. Called only while there is an
  // idle block.
  virtual BlockId Evict() = 0;
};

// A block is free, used (by one sequence or more), or idle: kept without a user, free on demand.
//
//   free --Allocate--> used --Release by the last user--> free
//                       |  ^
//     kept: Release by the last user, AddReference
//                       v  |
//                      idle --evicted by Allocate, or Forget--> free
//
// Not thread-safe: the engine thread owns it. Invariant: free + idle + used == total.
class BlockPool {
 public:
  explicit BlockPool(int64_t total_blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Call before the first Keep; `keeper` outlives the pool's last call. Null removes it.
  void set_keeper(BlockKeeper* keeper) { keeper_ = keeper; }

  // Allocates `count` blocks with one user each and appends their ids to `blocks`; evicts idle
  // blocks if there are too few free ones. Returns false, without any effect, if fewer than `count`
  // blocks are available.
  [[nodiscard]] bool Allocate(int64_t count, std::vector<BlockId>* blocks);

  // Adds one user to a block that is used or idle.
  void AddReference(BlockId block);
  // Removes one user; a block without users is free, or idle if it is kept.
  void Release(BlockId block);
  int64_t users(BlockId block) const { return users_[static_cast<size_t>(block)]; }

  // Keeps a used block: it becomes idle instead of free. Idempotent.
  void Keep(BlockId block);
  // Undoes Keep; an idle block becomes free, without a call to the keeper.
  void Forget(BlockId block);

  int64_t total_blocks() const { return static_cast<int64_t>(users_.size()); }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  int64_t idle_blocks() const { return idle_; }
  // The number of blocks that Allocate can return.
  int64_t available_blocks() const { return free_blocks() + idle_blocks(); }
  int64_t used_blocks() const { return total_blocks() - available_blocks(); }

 private:
  std::vector<int32_t> users_;  // by block id
  std::vector<bool> kept_;      // by block id
  std::vector<BlockId> free_;   // allocated from the back
  int64_t idle_ = 0;
  BlockKeeper* keeper_ = nullptr;
};

// Counts the blocks of a pool that would become available if some of their users released them.
class ReleaseCount {
 public:
  explicit ReleaseCount(const BlockPool& pool) : pool_(pool) {}
  // Records that one more user releases each of `blocks`.
  void Add(std::span<const BlockId> blocks) {
    for (const BlockId block : blocks) blocks_ += ++released_[block] == pool_.users(block);
  }
  int64_t blocks() const { return blocks_; }

 private:
  const BlockPool& pool_;
  std::unordered_map<BlockId, int64_t> released_;
  int64_t blocks_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_BLOCK_POOL_H_
