// The KV blocks of one sequence, and their state in the prefix cache.
#ifndef TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_
#define TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"
#include "model/kv_cache/prefix_cache.h"

namespace tlm {

// Returns the number of KV blocks that hold `tokens` tokens.
int64_t BlocksFor(int64_t tokens);

// Block i holds the tokens at positions [i * kBlockTokens, (i + 1) * kBlockTokens). Every `tokens`
// argument is the sequence's tokens from its start; later calls only append tokens.
//
// Not thread-safe. Must be Release()d before it is destroyed.
class BlockTable {
 public:
  explicit BlockTable(CacheScope scope) : scope_(std::move(scope)) {}
  // Returns a table without blocks that has the hashes computed by `parent`.
  static BlockTable BranchOf(const BlockTable& parent);

  std::span<const BlockId> blocks() const { return blocks_; }
  // The largest number of blocks so far, without the parent's blocks.
  int64_t peak() const { return peak_; }

  // The number of tokens that Adopt would find now.
  int64_t CachedTokens(const PrefixCache& cache, std::span<const int32_t> tokens,
                       int64_t max_blocks);
  // Uses the cached blocks of the longest prefix of `tokens`, at most `max_blocks`; returns the
  // number of their tokens. The table must have no blocks.
  int64_t Adopt(PrefixCache& cache, std::span<const int32_t> tokens, int64_t max_blocks);
  // Publishes the first `count` blocks, which are computed and full, unless already published. A
  // block that another sequence has published with the same tokens replaces this table's block.
  void Publish(PrefixCache& cache, std::span<const int32_t> tokens, int64_t count);
  // Publishes nothing from now on, until Release.
  void StopPublishing() { publishes_ = false; }

  // Allocates the missing blocks for `tokens` tokens. Returns false, without any effect, if the
  // pool has too few.
  [[nodiscard]] bool Grow(BlockPool& pool, int64_t tokens);
  // Releases the blocks after the first `tokens` tokens, which must not be published.
  void Trim(BlockPool& pool, int64_t tokens);
  // Uses the full blocks of `parent`'s first `tokens` tokens, and allocates a block for the rest,
  // if any, whose contents the caller copies. Returns false, without any effect, if the pool has no
  // block left. The table must have no blocks.
  [[nodiscard]] bool Share(const BlockTable& parent, int64_t tokens, BlockPool& pool);
  void Release(BlockPool& pool);

 private:
  // Returns the hashes of the first `count` blocks.
  std::span<const BlockHash> Hashes(std::span<const int32_t> tokens, int64_t count);

  CacheScope scope_;
  std::vector<BlockHash> hashes_;  // the root's hash, then full blocks' hashes; computed on demand
  std::vector<BlockId> blocks_;
  int64_t shared_ = 0;     // leading blocks that the parent allocated
  int64_t published_ = 0;  // leading blocks found in the cache or published
  bool publishes_ = true;
  int64_t peak_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_
