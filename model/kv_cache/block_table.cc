#include "model/kv_cache/block_table.h"

#include <algorithm>
#include <cstddef>

#include "model/base/errors.h"
#include "model/ops/ops.h"

namespace tlm {

int64_t BlocksFor(int64_t tokens) { return (tokens + kBlockTokens - 1) / kBlockTokens; }

BlockTable BlockTable::BranchOf(const BlockTable& parent) {
  BlockTable branch(parent.scope_);
  branch.hashes_ = parent.hashes_;
  return branch;
}

std::span<const BlockHash> BlockTable::Hashes(std::span<const int32_t> tokens, int64_t count) {
  if (hashes_.empty()) hashes_.push_back(RootHash(scope_.tenant, scope_.salt));
  while (static_cast<int64_t>(hashes_.size()) <= count) {
    const size_t begin = (hashes_.size() - 1) * kBlockTokens;
    hashes_.push_back(ChildHash(hashes_.back(), tokens.subspan(begin, kBlockTokens)));
  }
  return std::span(hashes_).subspan(1, static_cast<size_t>(count));
}

int64_t BlockTable::CachedTokens(const PrefixCache& cache, std::span<const int32_t> tokens,
                                 int64_t max_blocks) {
  if (scope_.bypass) return 0;
  return cache.Lookup(Hashes(tokens, max_blocks), tokens) * kBlockTokens;
}

int64_t BlockTable::Adopt(PrefixCache& cache, std::span<const int32_t> tokens, int64_t max_blocks) {
  TLM_CHECK(blocks_.empty());
  if (scope_.bypass) return 0;
  published_ = cache.Match(Hashes(tokens, max_blocks), tokens, &blocks_);
  peak_ = std::max(peak_, published_);
  return published_ * kBlockTokens;
}

void BlockTable::Publish(PrefixCache& cache, std::span<const int32_t> tokens, int64_t count) {
  if (!publishes_ || scope_.bypass || published_ >= count) return;
  const std::span<const BlockHash> hashes = Hashes(tokens, count);
  for (; published_ < count; ++published_) {
    const size_t index = static_cast<size_t>(published_);
    const BlockId parent = index == 0 ? kNoBlock : blocks_[index - 1];
    const auto content = tokens.subspan(index * kBlockTokens, kBlockTokens);
    blocks_[index] = cache.Publish(scope_, parent, hashes[index], content, blocks_[index]);
  }
}

bool BlockTable::Grow(BlockPool& pool, int64_t tokens) {
  const int64_t held = static_cast<int64_t>(blocks_.size());
  const int64_t missing = BlocksFor(tokens) - held;
  if (missing <= 0) return true;
  if (!pool.Allocate(missing, &blocks_)) return false;
  peak_ = std::max(peak_, held + missing - shared_);
  return true;
}

bool BlockTable::Share(const BlockTable& parent, int64_t tokens, BlockPool& pool) {
  TLM_CHECK(blocks_.empty());
  // The parent's later tokens are not shared.
  const int64_t full = tokens / kBlockTokens;
  std::vector<BlockId> own;
  const int64_t rest = BlocksFor(tokens) - full;
  if (!pool.Allocate(rest, &own)) return false;
  blocks_.assign(parent.blocks_.begin(), parent.blocks_.begin() + full);
  for (const BlockId block : blocks_) pool.AddReference(block);
  blocks_.insert(blocks_.end(), own.begin(), own.end());
  shared_ = full;
  published_ = std::min(parent.published_, full);
  publishes_ = parent.publishes_;
  peak_ = std::max(peak_, rest);
  return true;
}

void BlockTable::Trim(BlockPool& pool, int64_t tokens) {
  const int64_t kept = BlocksFor(tokens);
  TLM_CHECK(kept >= std::max(published_, shared_));
  for (; static_cast<int64_t>(blocks_.size()) > kept; blocks_.pop_back()) {
    pool.Release(blocks_.back());
  }
}

void BlockTable::Release(BlockPool& pool) {
  for (const BlockId block : blocks_) pool.Release(block);
  blocks_.clear();
  shared_ = 0;
  published_ = 0;
  publishes_ = true;
}

}  // namespace tlm
