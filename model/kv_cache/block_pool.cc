#include "model/kv_cache/block_pool.h"

#include "model/base/errors.h"

namespace tlm {

BlockPool::BlockPool(int64_t total_blocks)
    : users_(static_cast<size_t>(total_blocks), 0), kept_(users_.size(), false) {
  free_.reserve(users_.size());
  for (int64_t block = total_blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<BlockId>(block));
  }
}

bool BlockPool::Allocate(int64_t count, std::vector<BlockId>* blocks) {
  if (count > available_blocks()) return false;
  while (free_blocks() < count) {
    const BlockId block = keeper_->Evict();
    TLM_CHECK(kept_[block] && users_[block] == 0);
    Forget(block);
  }
  for (int64_t i = 0; i < count; ++i) {
    const BlockId block = free_.back();
    free_.pop_back();
    users_[block] = 1;
    blocks->push_back(block);
  }
  return true;
}

void BlockPool::AddReference(BlockId block) {
  TLM_CHECK(block >= 0 && block < total_blocks() && (users_[block] > 0 || kept_[block]));
  if (++users_[block] > 1) return;
  --idle_;
  keeper_->OnUsed(block);
}

void BlockPool::Release(BlockId block) {
  TLM_CHECK(block >= 0 && block < total_blocks() && users_[block] > 0);
  if (--users_[block] > 0) return;
  if (!kept_[block]) {
    free_.push_back(block);
    return;
  }
  ++idle_;
  keeper_->OnIdle(block);
}

void BlockPool::Keep(BlockId block) {
  TLM_CHECK(block >= 0 && block < total_blocks() && users_[block] > 0 && keeper_ != nullptr);
  kept_[block] = true;
}

void BlockPool::Forget(BlockId block) {
  TLM_CHECK(block >= 0 && block < total_blocks());
  if (!kept_[block]) return;
  kept_[block] = false;
  if (users_[block] > 0) return;
  --idle_;
  free_.push_back(block);
}

}  // namespace tlm
