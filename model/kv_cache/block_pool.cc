#include "model/kv_cache/block_pool.h"

#include "model/base/errors.h"

namespace tlm {

BlockPool::BlockPool(int64_t total_blocks) : references_(static_cast<size_t>(total_blocks), 0) {
  free_.reserve(references_.size());
  for (int64_t block = total_blocks - 1; block >= 0; --block) {
    free_.push_back(static_cast<BlockId>(block));
  }
}

bool BlockPool::Allocate(int64_t count, std::vector<BlockId>* blocks) {
  if (count > free_blocks()) return false;
  for (int64_t i = 0; i < count; ++i) {
    const BlockId block = free_.back();
    free_.pop_back();
    references_[block] = 1;
    blocks->push_back(block);
  }
  return true;
}

void BlockPool::AddReference(BlockId block) {
  TLM_CHECK(block >= 0 && block < total_blocks() && references_[block] > 0);
  ++references_[block];
}

void BlockPool::Release(BlockId block) {
  TLM_CHECK(block >= 0 && block < total_blocks() && references_[block] > 0);
  if (--references_[block] == 0) free_.push_back(block);
}

}  // namespace tlm
