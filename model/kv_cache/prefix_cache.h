// Full KV blocks of earlier sequences, found by the tokens they were computed from.
#ifndef TLM_MODEL_KV_CACHE_PREFIX_CACHE_H_
#define TLM_MODEL_KV_CACHE_PREFIX_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/kv_cache/block_pool.h"

namespace tlm {

// The first 128 bits of a SHA-256 over the parent's hash and a block's tokens: chosen prompts
// cannot be made to collide.
using BlockHash = std::array<uint64_t, 2>;

// The parent of first blocks. Sequences share blocks only with the same tenant and salt.
BlockHash RootHash(std::string_view tenant, std::string_view salt);
// `tokens`: kBlockTokens of them.
BlockHash ChildHash(const BlockHash& parent, std::span<const int32_t> tokens);

inline constexpr BlockId kNoBlock = -1;

// Counted since the start.
struct PrefixCacheStats {
  int64_t lookups = 0;         // sequences that asked
  int64_t queried_tokens = 0;  // of whole blocks they asked for
  int64_t hit_tokens = 0;      // those of them that were found
  int64_t evicted_blocks = 0;
  int64_t published_blocks = 0;
};

// A forest: a node is a block with its kBlockTokens tokens, its parent the block before it.
//
//   root(tenant, salt) -- [a b c d] -- [e f g h] -- [i j k l]
//                             \------- [e x y z]
//
// Blocks in it are kept by the pool. A user of a block uses all of its ancestors, so that an idle
// block has only idle descendants. Eviction takes the idle leaf that has been idle the longest
// (LRU). Not thread-safe: the engine thread owns it.
class PrefixCache : public BlockKeeper {
 public:
  // Becomes the pool's keeper; the pool outlives the cache.
  explicit PrefixCache(BlockPool& pool);
  // Flush()es; blocks in use become free when their users release them.
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // Appends the blocks of the longest known chain that begins `tokens`, with one more user each;
  // returns how many they are. `hashes` are the chain's hashes, one for each block that may be
  // asked for (tokens has at least kBlockTokens for each). A hash match alone is not
  // trusted: the tokens are compared.
  int64_t Match(std::span<const BlockHash> hashes, std::span<const int32_t> tokens,
                std::vector<BlockId>* blocks);

  // How many blocks Match would find. Changes nothing, the statistics included.
  int64_t Lookup(std::span<const BlockHash> hashes, std::span<const int32_t> tokens) const;

  // `block`, used by the caller, holds these kBlockTokens tokens behind the caller's block `parent`
  // (kNoBlock: at position 0); `hash` is the chain's up to here. Returns the block to use
  // from now on: the same, or, where another sequence has published the same tokens before, that
  // one, with one more user, and `block` has lost one. Both hold the same bits, so results do not
  // change. Idempotent. Does nothing if `parent` is not in the cache: the cache was flushed while
  // the caller ran.
  BlockId Publish(BlockId parent, const BlockHash& hash, std::span<const int32_t> tokens,
                  BlockId block);

  // Forgets everything: idle blocks become free, used ones will when they are released. Returns
  // how many became free.
  int64_t Flush();

  // Blocks in the cache, used ones included.
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
  // Visits the blocks of the longest known chain; returns how many they are.
  template <typename Visit>
  int64_t Walk(std::span<const BlockHash> hashes, std::span<const int32_t> tokens,
               Visit visit) const;
  // The block that holds the tokens behind `parent`; kNoBlock when there is none.
  BlockId Find(BlockId parent, const BlockHash& hash, std::span<const int32_t> tokens) const;

  BlockPool& pool_;
  std::vector<Node> nodes_;  // by block id
  std::unordered_map<BlockHash, BlockId, HashOfBlockHash> by_hash_;
  // Idle blocks without children, by the time they became idle.
  std::set<std::pair<int64_t, BlockId>> idle_leaves_;
  int64_t now_ = 0;  // counts how often a block became idle
  PrefixCacheStats stats_;
};

}  // namespace tlm

#endif  // TLM_MODEL_KV_CACHE_PREFIX_CACHE_H_
