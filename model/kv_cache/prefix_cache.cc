#include "model/kv_cache/prefix_cache.h"

#include <algorithm>
#include <cstring>

#include "model/base/errors.h"
#include "model/base/sha256.h"
#include "model/ops/ops.h"

namespace tlm {
namespace {

// The first byte of the hashed bytes keeps roots and children apart.
constexpr char kRootTag = 'r';
constexpr char kChildTag = 'c';

BlockHash HashOf(std::string_view bytes) {
  // OpenSSL refuses SHA-256 only where it has already refused the digest of the weights.
  const absl::StatusOr<Sha256Digest> digest = Sha256(bytes);
  TLM_CHECK(digest.ok());
  BlockHash hash;
  static_assert(sizeof(hash) <= sizeof(Sha256Digest));
  std::memcpy(hash.data(), digest->data(), sizeof(hash));
  return hash;
}

// Puts the length first, so that no two lists of strings have the same bytes.
void AppendWithLength(std::string_view text, std::string* bytes) {
  const uint64_t size = text.size();
  bytes->append(reinterpret_cast<const char*>(&size), sizeof(size));
  bytes->append(text);
}

}  // namespace

BlockHash RootHash(std::string_view tenant, std::string_view salt) {
  std::string bytes(1, kRootTag);
  AppendWithLength(tenant, &bytes);
  AppendWithLength(salt, &bytes);
  return HashOf(bytes);
}

BlockHash ChildHash(const BlockHash& parent, std::span<const int32_t> tokens) {
  TLM_CHECK(tokens.size() == kBlockTokens);
  std::array<char, 1 + sizeof(parent) + kBlockTokens * sizeof(int32_t)> bytes;
  bytes[0] = kChildTag;
  std::memcpy(&bytes[1], parent.data(), sizeof(parent));
  std::memcpy(&bytes[1 + sizeof(parent)], tokens.data(), tokens.size_bytes());
  return HashOf({bytes.data(), bytes.size()});
}

struct PrefixCache::Node {
  bool cached = false;
  BlockHash hash{};
  BlockId parent = kNoBlock;
  int64_t children = 0;
  int64_t idle_since = 0;  // counts while the block has no users
  std::array<int32_t, kBlockTokens> tokens{};
};

PrefixCache::PrefixCache(BlockPool& pool)
    : pool_(pool), nodes_(static_cast<size_t>(pool.total_blocks())) {
  by_hash_.reserve(nodes_.size());
  pool_.set_keeper(this);
}

PrefixCache::~PrefixCache() {
  Flush();
  pool_.set_keeper(nullptr);
}

int64_t PrefixCache::size() const { return static_cast<int64_t>(by_hash_.size()); }

template <typename Visit>
int64_t PrefixCache::Walk(std::span<const BlockHash> hashes, std::span<const int32_t> tokens,
                          Visit visit) const {
  BlockId parent = kNoBlock;
  for (size_t i = 0; i < hashes.size(); ++i) {
    const BlockId block = Find(parent, hashes[i], tokens.subspan(i * kBlockTokens, kBlockTokens));
    if (block == kNoBlock) return static_cast<int64_t>(i);
    visit(block);
    parent = block;
  }
  return static_cast<int64_t>(hashes.size());
}

int64_t PrefixCache::Match(std::span<const BlockHash> hashes, std::span<const int32_t> tokens,
                           std::vector<BlockId>* blocks) {
  const int64_t found = Walk(hashes, tokens, [&](BlockId block) {
    pool_.AddReference(block);
    blocks->push_back(block);
  });
  ++stats_.lookups;
  stats_.queried_tokens += static_cast<int64_t>(hashes.size()) * kBlockTokens;
  stats_.hit_tokens += found * kBlockTokens;
  return found;
}

int64_t PrefixCache::Lookup(std::span<const BlockHash> hashes,
                            std::span<const int32_t> tokens) const {
  return Walk(hashes, tokens, [](BlockId) {});
}

BlockId PrefixCache::Publish(const CacheScope& scope, BlockId parent, const BlockHash& hash,
                             std::span<const int32_t> tokens, BlockId block) {
  TLM_CHECK(tokens.size() == kBlockTokens && pool_.users(block) > 0);
  // The caller uses the parent, so the parent's chain is the caller's own prefix.
  TLM_CHECK(parent == kNoBlock || pool_.users(parent) > 0);
  if (parent != kNoBlock && !node(parent).cached) return block;

  const BlockId known = Find(parent, hash, tokens);
  if (known == block) return block;
  if (known != kNoBlock) {
    pool_.AddReference(known);
    pool_.Release(block);
    return known;
  }
  if (!by_hash_.emplace(hash, block).second) return block;  // other tokens have the same hash
  Node& added = node(block);
  TLM_CHECK(!added.cached);
  added = {.cached = true, .hash = hash, .parent = parent};
  std::ranges::copy(tokens, added.tokens.begin());
  if (parent != kNoBlock) ++node(parent).children;
  pool_.Keep(block);
  ++stats_.published_blocks;
  if (observer_ != nullptr) observer_->OnStored(scope, parent, hash, tokens, block);
  return block;
}

int64_t PrefixCache::Flush() {
  const int64_t freed = pool_.idle_blocks();
  // Goes by id: the order in which blocks become free must not depend on a hash map's order.
  for (BlockId block = 0; block < pool_.total_blocks(); ++block) {
    if (!node(block).cached) continue;
    node(block).cached = false;
    pool_.Forget(block);
  }
  by_hash_.clear();
  idle_leaves_.clear();
  if (observer_ != nullptr) observer_->OnFlushed();
  return freed;
}

void PrefixCache::OnIdle(BlockId block) {
  Node& idle = node(block);
  idle.idle_since = ++now_;
  if (idle.children == 0) idle_leaves_.emplace(idle.idle_since, block);
}

void PrefixCache::OnUsed(BlockId block) { idle_leaves_.erase({node(block).idle_since, block}); }

BlockId PrefixCache::Evict() {
  TLM_CHECK(!idle_leaves_.empty());
  const BlockId block = idle_leaves_.begin()->second;
  idle_leaves_.erase(idle_leaves_.begin());
  Node& evicted = node(block);
  by_hash_.erase(evicted.hash);
  evicted.cached = false;
  if (const BlockId parent = evicted.parent; parent != kNoBlock) {
    const bool is_leaf = --node(parent).children == 0;
    if (is_leaf && pool_.users(parent) == 0) {
      idle_leaves_.emplace(node(parent).idle_since, parent);
    }
  }
  ++stats_.evicted_blocks;
  if (observer_ != nullptr) observer_->OnEvicted(block);
  return block;
}

PrefixCache::Node& PrefixCache::node(BlockId block) { return nodes_[static_cast<size_t>(block)]; }

BlockId PrefixCache::Find(BlockId parent, const BlockHash& hash,
                          std::span<const int32_t> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return kNoBlock;
  const Node& candidate = nodes_[static_cast<size_t>(found->second)];
  if (candidate.parent != parent) return kNoBlock;
  return std::ranges::equal(candidate.tokens, tokens) ? found->second : kNoBlock;
}

}  // namespace tlm
