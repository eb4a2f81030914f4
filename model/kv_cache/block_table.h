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

// The number of KV blocks for so many tokens.
int64_t BlocksFor(int64_t tokens);

// Block i holds the tokens at positions [i * kBlockTokens, (i + 1) * kBlockTokens). `tokens` are
// always those of the sequence from its start; later calls only append tokens.
//
// Not thread-safe. Must be Release()d before it is destroyed.
class BlockTable {
 public:
  explicit BlockTable(CacheScope scope) : scope_(std::move(scope)) {}
  // Without blocks; copies the hashes that `parent` has computed.
  static BlockTable BranchOf(const BlockTable& parent);

  std::span<const BlockId> blocks() const { return blocks_; }
  // The largest number of blocks so far, without those of its parent.
  int64_t peak() const { return peak_; }

  // The number of tokens that Adopt would find now.
  int64_t CachedTokens(const PrefixCache& cache, std::span<const int32_t> tokens,
                       int64_t max_blocks);
  // Of a table without blocks: uses the cached blocks of the longest prefix of `tokens`, at most
  // `max_blocks`; returns the number of their tokens.
  int64_t Adopt(PrefixCache& cache, std::span<const int32_t> tokens, int64_t max_blocks);
  // Publishes the first `count` blocks, which are computed and full, unless already published;
  // replaces those that other sequences have published with the same tokens.
  void Publish(PrefixCache& cache, std::span<const int32_t> tokens, int64_t count);
  // Publishes nothing from now on, until it is released.
  void StopPublishing() { publishes_ = false; }

  // Allocates the missing blocks for `tokens` tokens; false, without any effect, if the pool lacks
  // them.
  [[nodiscard]] bool Grow(BlockPool& pool, int64_t tokens);
  // Gives the blocks behind `tokens` tokens back, which are not published.
  void Trim(BlockPool& pool, int64_t tokens);
  // Of a table without blocks: uses the full blocks of `parent`'s first `tokens` tokens, and
  // allocates a block for the rest, if any, whose contents the caller copies. False, without any
  // effect, when the pool has no block left.
  [[nodiscard]] bool Share(const BlockTable& parent, int64_t tokens, BlockPool& pool);
  void Release(BlockPool& pool);

 private:
  // Of the first `count` blocks.
  std::span<const BlockHash> Hashes(std::span<const int32_t> tokens, int64_t count);

  CacheScope scope_;
  std::vector<BlockHash> hashes_;  // of the root, then of full blocks, as far as computed
  std::vector<BlockId> blocks_;
  int64_t shared_ = 0;     // of blocks_, the first ones; allocated by the parent
  int64_t published_ = 0;  // of blocks_, the first ones; found in the cache or published
  bool publishes_ = true;
  int64_t peak_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_
