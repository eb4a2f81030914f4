// The prefix cache: full KV blocks of earlier sequences, found by their tokens.
#ifndef TLM_MODEL_KV_CACHE_PREFIX_CACHE_H_
#define TLM_MODEL_KV_CACHE_PREFIX_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"

namespace tlm {

// The first 128 bits of a SHA-256 over the parent's hash and a block's tokens: chosen prompts
// cannot be made to collide.
using BlockHash = std::array<uint64_t, 2>;

// The parent hash of first blocks. Sequences share blocks only within one tenant and salt.
BlockHash RootHash(std::string_view tenant, std::string_view salt);
// `tokens` has kBlockTokens elements.
BlockHash ChildHash(const BlockHash& parent, std::span<const int32_t> tokens);

inline constexpr BlockId kNoBlock = -1;

// The scope in which a sequence shares blocks through the prefix cache.
struct CacheScope {
  std::string tenant;
  std::string salt;     // only sequences with the same tenant and salt share blocks
  bool bypass = false;  // blocks are neither looked up nor published
};

// Counts since the start.
struct PrefixCacheStats {
  int64_t lookups = 0;         // number of sequences looked up
  int64_t queried_tokens = 0;  // tokens in the full blocks looked up
  int64_t hit_tokens = 0;      // tokens in the blocks found
  int64_t evicted_blocks = 0;
  int64_t published_blocks = 0;
};

// Receives every change of the cache's contents, in order, from within the cache's functions. Every
// stored block is evicted once, or flushed.
class PrefixCacheObserver {
 public:
  virtual ~PrefixCacheObserver() = default;
  // `block` was added after `parent` (kNoBlock: first block of a prompt), which has the same scope.
  // PrefixCache::Publish describes the arguments.
  virtual void OnStored(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                        std::span<const int32_t> tokens, BlockId block) = 0;
  // `block`, which has no children, was removed.
  virtual void OnEvicted(BlockId block) = 0;
  // All blocks were removed.
  virtual void OnFlushed() = 0;
};

// A forest: a node is a block with its kBlockTokens tokens, its parent the block before it.
//
//   root(tenant, salt) -- [a b c d] -- [e f g h] -- [i j k l]
//                             \------- [e x y z]
//
// The pool keeps its blocks. A user of a block uses all of its ancestors, so an idle block has only
// idle descendants. Eviction takes the least recently used idle leaf (LRU). Not thread-safe: the
// engine thread owns it.
class PrefixCache : public BlockKeeper {
 public:
  // Becomes the pool's keeper; the pool outlives the cache.
  explicit PrefixCache(BlockPool& pool);
  // Flush()es; blocks in use become free when their users release them.
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Call while the cache is empty; the observer outlives the cache. Null removes it.
  void set_observer(PrefixCacheObserver* observer) { observer_ = observer; }

  // Appends the cached blocks of the longest prefix of `tokens` and adds one user to each; returns
  // their number. `hashes` has the chain's hashes, one per block to look up (`tokens` has at least
  // kBlockTokens for each). The tokens are compared, too: a hash match is not trusted.
  int64_t Match(std::span<const BlockHash> hashes, std::span<const int32_t> tokens,
                std::vector<BlockId>* blocks);

  // Returns the number of blocks that Match would find, without side effects, even on the
  // statistics.
  int64_t Lookup(std::span<const BlockHash> hashes, std::span<const int32_t> tokens) const;

  // `block`, used by the caller, holds these kBlockTokens tokens after the caller's block `parent`
  // (kNoBlock: at position 0). `hash` is the hash of the chain up to this block, which begins at
  // the root of `scope`; only the observer needs `scope`. Returns the block to use from now on: the
  // same one, or an earlier block with the same tokens, which gains a user while `block` loses one.
  // Both hold the same bits, so results do not change. Idempotent. Has no effect if a flush has
  // removed `parent` from the cache.
  BlockId Publish(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                  std::span<const int32_t> tokens, BlockId block);

  // Empties the cache: idle blocks become free, used ones when they are released. Returns the
  // number of freed blocks.
  int64_t Flush();

  // The number of blocks in the cache, used ones included.
  int64_t size() const;
  const PrefixCacheStats& stats() const { return stats_; }

  // BlockKeeper
  void OnIdle(BlockId block) override;
  void OnUsed(BlockId block) override;
  BlockId Evict() override;

 private:
  struct Node;
  struct HashOfBlockHash {
    size_t operator()(const BlockHash& hash) const { return static_cast<size_t>(hash[0]); }
  };

  Node& node(BlockId block);
  // Visits the blocks of the longest cached prefix; returns their number.
  template <typename Visit>
  int64_t Walk(std::span<const BlockHash> hashes, std::span<const int32_t> tokens,
               Visit visit) const;
  // Returns the block that holds the tokens after `parent`; kNoBlock if there is none.
  BlockId Find(BlockId parent, const BlockHash& hash, std::span<const int32_t> tokens) const;

  BlockPool& pool_;
  PrefixCacheObserver* observer_ = nullptr;
  std::vector<Node> nodes_;  // by block id
  std::unordered_map<BlockHash, BlockId, HashOfBlockHash> by_hash_;
  // Idle blocks without children, by the time they became idle.
  std::set<std::pair<int64_t, BlockId>> idle_leaves_;
  int64_t now_ = 0;  // times that a block became idle
  PrefixCacheStats stats_;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_PREFIX_CACHE_H_
