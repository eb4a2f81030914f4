#include "model/kv_cache/kv_storage.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "model/base/errors.h"
#include "model/base/thread_name.h"

namespace tlm {
namespace {

// A touch that takes longer has zeroed pages. The thread then pauses for as long as the touch took:
// the kernel does not let a step's threads run meanwhile.
constexpr std::chrono::microseconds kFree(200);

// Returns false if the kernel does not support it (before Linux 5.14) or has no memory left.
bool Touch(std::byte* data, size_t bytes) {
#if defined(MADV_POPULATE_WRITE)
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t before = reinterpret_cast<uintptr_t>(data) % page;
  return madvise(data - before, bytes + before, MADV_POPULATE_WRITE) == 0;
#else
  return false;
#endif
}

}  // namespace

KvPages::KvPages(std::byte* data, size_t bytes)
    : data_(data), bytes_(bytes), thread_([this] { Run(); }) {}

KvPages::~KvPages() {
  reached_ = kStop;
  reached_.notify_all();
  thread_.join();
}

void KvPages::Reach(size_t bytes) {
  size_t reached = reached_;
  while (bytes > reached && !reached_.compare_exchange_weak(reached, bytes)) {
  }
  if (bytes > reached) reached_.notify_all();
}

void KvPages::WaitUntilDone() {
  for (size_t touched = touched_; touched < DueFor(reached_); touched = touched_) {
    touched_.wait(touched);
  }
}

size_t KvPages::DueFor(size_t reached) const {
  const size_t due = reached + std::min(reached / 4, kMaxAheadBytes);
  // Rounds down to whole pieces: a large page is not touched for its beginning.
  return std::min(std::max(reached, due / kPieceBytes * kPieceBytes), bytes_);
}

void KvPages::Run() {
  NameThisThread("kv_pages");
  size_t ahead = 0;  // the end of touched memory, which may have a hole before it
  for (size_t reached = reached_; reached != kStop; reached = reached_) {
    const size_t due = DueFor(reached);
    if (ahead < due) {
      // This comes first: a long prompt gets all its blocks at once, and other sequences continue
      // after them.
      ahead = TouchPiece(std::max(ahead, std::min(reached, bytes_)), due);
    } else if (touched_ < ahead) {
      touched_ = TouchPiece(touched_, ahead);
      touched_.notify_all();
    } else {
      reached_.wait(reached);
    }
  }
}

size_t KvPages::TouchPiece(size_t begin, size_t end) const {
  // Ends at the end of a large page, if data_ begins with one.
  end = std::min(end, (begin / kPieceBytes + 1) * kPieceBytes);
  const auto before = std::chrono::steady_clock::now();
  if (!Touch(data_ + begin, end - begin)) return bytes_;  // nor can it later
  const auto took = std::chrono::steady_clock::now() - before;
  if (took > kFree) std::this_thread::sleep_for(took);
  return end;
}

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
