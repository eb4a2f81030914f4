// The KV blocks of one sequence, and what of them the prefix cache knows.
#ifndef TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_
#define TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"
#include "model/kv_cache/prefix_cache.h"

namespace tlm {

// KV blocks that hold this many tokens.
int64_t BlocksFor(int64_t tokens);

// Whose blocks a sequence may share over the prefix cache.
struct CacheScope {
  std::string tenant;
  std::string salt;     // only sequences with the same tenant and salt find each other's blocks
  bool bypass = false;  // neither looks blocks up nor publishes them
};

// Block i holds the tokens at positions [i * kBlockTokens, (i + 1) * kBlockTokens). `tokens` are
// always the sequence's from its beginning on, the same ones each time as far as they were given
// before.
//
// Not thread-safe. Must be Release()d before it goes away.
class BlockTable {
 public:
  explicit BlockTable(CacheScope scope) : scope_(std::move(scope)) {}
  // Without blocks; with the hashes that `parent` has computed.
  static BlockTable BranchOf(const BlockTable& parent);

  std::span<const BlockId> blocks() const { return blocks_; }
  // The most blocks it has had at a time, without those of its parent.
  int64_t peak() const { return peak_; }

  // How many tokens Adopt would find now.
  int64_t CachedTokens(const PrefixCache& cache, std::span<const int32_t> tokens,
                       int64_t max_blocks);
  // Without blocks: becomes a user of the cached blocks that begin `tokens`, at most `max_blocks`;
  // returns how many tokens they hold.
  int64_t Adopt(PrefixCache& cache, std::span<const int32_t> tokens, int64_t max_blocks);
  // Publishes the first `count` blocks, computed and full, as far as they were not yet, and
  // replaces those that others have published before.
  void Publish(PrefixCache& cache, std::span<const int32_t> tokens, int64_t count);
  // Nothing that its blocks hold, or will hold until it is released, is published from now on.
  void StopPublishing() { publishes_ = false; }

  // Takes what is missing for `tokens` tokens; false, and nothing is taken, when the pool has less.
  [[nodiscard]] bool Grow(BlockPool& pool, int64_t tokens);
  // Without blocks: becomes a user of the full ones among those in which `parent` holds the first
  // `tokens` tokens, and takes one for the rest, if any, whose contents are to be copied. False,
  // and nothing is taken, when the pool has no block left.
  [[nodiscard]] bool Share(const BlockTable& parent, int64_t tokens, BlockPool& pool);
  void Release(BlockPool& pool);

 private:
  // Of the first `count` blocks.
  std::span<const BlockHash> Hashes(std::span<const int32_t> tokens, int64_t count);

  CacheScope scope_;
  std::vector<BlockHash> hashes_;  // of the root, then of the full blocks as far as asked for
  std::vector<BlockId> blocks_;
  int64_t shared_ = 0;     // of blocks_, the first ones; taken by the parent
  int64_t published_ = 0;  // of blocks_, the first ones; found in the cache or told to it
  bool publishes_ = true;
  int64_t peak_ = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_BLOCK_TABLE_H_
