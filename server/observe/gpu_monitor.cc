#include "server/observe/gpu_monitor.h"

#include <spdlog/spdlog.h>

#include <thread>
#include <utility>

#include "model/base/mutex.h"

namespace tlm {
namespace {

// Waits until done() or for `limit`; returns done(). The caller holds `mutex`.
template <typename Done>
bool WaitUntil(CondVar& changed, Mutex& mutex, absl::Duration limit, Done done) {
  const auto end = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit);
  while (!done()) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= left.zero() || !changed.WaitFor(&mutex, left)) return done();
  }
  return true;
}

}  // namespace

struct GpuMonitor::Shared {
  explicit Shared(Clock& c) : clock(c) {}

  Clock& clock;
  Mutex mutex;
  CondVar changed;
  bool wanted TLM_GUARDED_BY(mutex) = false;  // new values are wanted
  bool ending TLM_GUARDED_BY(mutex) = false;
  bool ended TLM_GUARDED_BY(mutex) = false;  // the thread has ended, also if there is no driver
  std::optional<GpuFigures> figures TLM_GUARDED_BY(mutex);  // nullopt while the driver is opened
  absl::Time taken TLM_GUARDED_BY(mutex) = absl::InfinitePast();

  void Run(const std::string& uuid, const std::string& library) {
    {
      const absl::StatusOr<std::unique_ptr<Nvml>> nvml = Nvml::Open(uuid, library);
      if (nvml.ok()) {
        while (WaitForWish()) Publish((*nvml)->Read(), clock.Now());
      } else {
        spdlog::info("no metrics of the GPU: {}", std::string(nvml.status().message()));
      }
    }
    MutexLock lock(&mutex);
    ended = true;
    changed.NotifyAll();
  }
  // Returns false when the monitor ends.
  bool WaitForWish() {
    MutexLock lock(&mutex);
    while (!wanted && !ending) changed.Wait(&mutex);
    return !ending;
  }
  void Publish(GpuFigures read, absl::Time now) {
    MutexLock lock(&mutex);
    figures = std::move(read);
    taken = now;
    wanted = false;
    changed.NotifyAll();
  }
};

GpuMonitor::GpuMonitor(const std::string& uuid, Clock& clock, const std::string& library)
    : shared_(std::make_shared<Shared>(clock)) {
  std::thread([shared = shared_, uuid, library] { shared->Run(uuid, library); }).detach();
}

GpuMonitor::~GpuMonitor() {
  Shared& shared = *shared_;
  MutexLock lock(&shared.mutex);
  shared.ending = true;
  shared.changed.NotifyAll();
  if (!WaitUntil(shared.changed, shared.mutex, kEndLimit, [&] { return shared.ended; })) {
    spdlog::warn("the GPU's driver hangs");
  }
}

std::optional<GpuFigures> GpuMonitor::Read() {
  Shared& shared = *shared_;
  MutexLock lock(&shared.mutex);
  if (shared.clock.Now() - shared.taken >= kFresh && !shared.ended) {
    shared.wanted = true;
    shared.changed.NotifyAll();
    WaitUntil(shared.changed, shared.mutex, kReadLimit,
              [&] { return !shared.wanted || shared.ended; });
  }
  if (shared.ended || !shared.figures.has_value()) return std::nullopt;
  if (shared.clock.Now() - shared.taken <= kStale) return shared.figures;
  GpuFigures stale;
  stale.uuid = shared.figures->uuid;
  stale.driver = shared.figures->driver;
  return stale;
}

}  // namespace tlm
