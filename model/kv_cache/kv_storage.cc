#include "model/kv_cache/kv_storage.h"

#include <utility>

#include "model/base/errors.h"

namespace tlm {

absl::StatusOr<KvStorage> KvStorage::Create(Device& device, const KvShape& shape,
                                            int64_t num_blocks) {
  TLM_CHECK(num_blocks > 0);
  const size_t bytes = shape.bytes_per_block() * static_cast<size_t>(num_blocks);
  TLM_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(bytes, MemoryPurpose::kKvCache));
  return KvStorage(shape, num_blocks, std::move(buffer), device.info().host_addressable);
}

KvStorage::KvStorage(const KvShape& shape, int64_t num_blocks, Buffer buffer, bool on_host)
    : shape_(shape), num_blocks_(num_blocks), buffer_(std::move(buffer)) {
  // Smaller storage is touched fast enough.
  if (!on_host || bytes() < KvPages::kPieceBytes) return;
  pages_ = std::make_unique<KvPages>(buffer_.as<std::byte>(), bytes());
}

void KvStorage::Reach(BlockId block) {
  if (block <= furthest_ || pages_ == nullptr) return;
  furthest_ = block;
  pages_->Reach(shape_.bytes_per_block() * static_cast<size_t>(block + 1));
}

KvLayer KvStorage::layer(int64_t index) const {
  KvLayer layer{.data = nullptr,
                .dtype = shape_.dtype,
                .num_blocks = num_blocks_,
                .num_kv_heads = shape_.num_kv_heads,
                .head_dim = shape_.head_dim,
                .layers = shape_.num_layers};
  layer.data = buffer_.as<std::byte>() + static_cast<size_t>(index) * layer.block_bytes();
  return layer;
}

}  // namespace tlm
