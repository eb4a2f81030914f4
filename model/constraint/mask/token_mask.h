// The tokens that may follow in one state of a recognizer, and a cache of such masks.
#ifndef TLM_MODEL_CONSTRAINT_MASK_TOKEN_MASK_H_
#define TLM_MODEL_CONSTRAINT_MASK_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/constraint/bytes/recognizer.h"

namespace tlm {

// A set of tokens: a list if it is small, otherwise a bitmap.
struct TokenMask {
  // Makes the set from a bitmap: bit id % 64 of word id / 64. `may_end` and `forced` are not set.
  static TokenMask FromBitmap(std::vector<uint64_t> bitmap);

  bool Has(int32_t token) const;
  // Approximate memory.
  size_t bytes() const;

  std::vector<int32_t> ids;       // empty if there is a bitmap
  std::vector<uint64_t> bitmap;   // empty if the tokens are in `ids`
  bool no_token = false;          // the set is empty
  bool may_end = false;           // the text may end in this state
  std::optional<int32_t> forced;  // ConstraintMatcher::Allowed::forced
};

// The most recently used masks, by state. Not thread-safe.
class MaskCache {
 public:
  // The masks together take at most `max_bytes`, except that the newest is always kept.
  explicit MaskCache(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null if the cache has no mask for the state.
  std::shared_ptr<const TokenMask> Find(Recognizer::State state);
  // The cache must have no mask for the state yet.
  void Insert(Recognizer::State state, std::shared_ptr<const TokenMask> mask);
  size_t bytes() const { return bytes_; }

 private:
  using Entry = std::pair<Recognizer::State, std::shared_ptr<const TokenMask>>;

  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> masks_;  // the most recently used first
  std::unordered_map<Recognizer::State, std::list<Entry>::iterator> by_state_;
};

}  // namespace tlm

#endif  // TLM_MODEL_CONSTRAINT_MASK_TOKEN_MASK_H_
