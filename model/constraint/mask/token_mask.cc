#include "model/constraint/mask/token_mask.h"

#include <algorithm>
#include <bit>

namespace tlm {
namespace {

// A mask of more tokens than this is kept as a bitmap.
constexpr size_t kMaxListedTokens = 1024;

}  // namespace

TokenMask TokenMask::FromBitmap(std::vector<uint64_t> bitmap) {
  TokenMask mask;
  size_t count = 0;
  for (const uint64_t word : bitmap) count += static_cast<size_t>(std::popcount(word));
  mask.no_token = count == 0;
  if (count > kMaxListedTokens) {
    mask.bitmap = std::move(bitmap);
    return mask;
  }
  mask.ids.reserve(count);
  for (size_t i = 0; i < bitmap.size(); ++i) {
    for (uint64_t word = bitmap[i]; word != 0; word &= word - 1) {
      mask.ids.push_back(static_cast<int32_t>(i * 64) + std::countr_zero(word));
    }
  }
  return mask;
}

bool TokenMask::Has(int32_t token) const {
  const auto bit = static_cast<size_t>(token);
  return bitmap.empty() ? std::find(ids.begin(), ids.end(), token) != ids.end()
                        : (bitmap[bit / 64] >> (bit % 64) & 1) != 0;
}

size_t TokenMask::bytes() const {
  return sizeof *this + 64 + ids.size() * sizeof(int32_t) + bitmap.size() * sizeof(uint64_t);
}

std::shared_ptr<const TokenMask> MaskCache::Find(Recognizer::State state) {
  const auto found = by_state_.find(state);
  if (found == by_state_.end()) return nullptr;
  masks_.splice(masks_.begin(), masks_, found->second);
  return found->second->second;
}

void MaskCache::Insert(Recognizer::State state, std::shared_ptr<const TokenMask> mask) {
  bytes_ += mask->bytes();
  masks_.emplace_front(state, std::move(mask));
  by_state_[state] = masks_.begin();
  while (bytes_ > max_bytes_ && masks_.size() > 1) {
    bytes_ -= masks_.back().second->bytes();
    by_state_.erase(masks_.back().first);
    masks_.pop_back();
  }
}

}  // namespace tlm
