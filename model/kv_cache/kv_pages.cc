#include "model/kv_cache/kv_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "model/base/thread_name.h"

namespace tlm {
namespace {

// Touched at a time in each layer: a large page.
constexpr size_t kPiece = size_t{2} << 20;

// False where the kernel does not support it (before Linux 5.14) or has no memory left.
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

KvPages::KvPages(std::byte* data, int64_t layers, size_t layer_bytes)
    : data_(data), layers_(layers), layer_bytes_(layer_bytes), thread_([this] { Run(); }) {}

KvPages::~KvPages() {
  {
    MutexLock lock(&mutex_);
    stopped_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void KvPages::Reach(size_t bytes) {
  MutexLock lock(&mutex_);
  if (bytes <= reached_) return;
  reached_ = bytes;
  due_ = std::min(bytes + kAhead, layer_bytes_);
  changed_.NotifyAll();
}

void KvPages::WaitUntilDone() {
  MutexLock lock(&mutex_);
  while (touched_ < due_ && !stopped_) changed_.Wait(&mutex_);
}

void KvPages::Run() {
  NameThisThread("kv_pages");
  LowerPriority();
  MutexLock lock(&mutex_);
  while (!stopped_) {
    touched_ = std::max(touched_, std::min(reached_, layer_bytes_));
    if (touched_ >= due_) {
      changed_.NotifyAll();
      changed_.Wait(&mutex_);
      continue;
    }
    const size_t begin = touched_;
    const size_t end = std::min(begin + kPiece, due_);
    for (int64_t layer = 0; layer < layers_ && !stopped_; ++layer) {
      mutex_.Unlock();
      const bool touched =
          Touch(data_ + static_cast<size_t>(layer) * layer_bytes_ + begin, end - begin);
      mutex_.Lock();
      stopped_ |= !touched;
    }
    touched_ = end;
  }
  changed_.NotifyAll();
}

}  // namespace tlm
