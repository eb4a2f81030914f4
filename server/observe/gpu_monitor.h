// Figures of the GPU for scrapes, which wait for the driver only so long.
#ifndef TLM_SERVER_OBSERVE_GPU_MONITOR_H_
#define TLM_SERVER_OBSERVE_GPU_MONITOR_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "model/base/clock.h"
#include "server/observe/nvml.h"

namespace tlm {

// Thread-safe. One thread, which alone calls the driver, and only when figures are read.
class GpuMonitor {
 public:
  // The GPU as Nvml::Open takes it. Why it cannot be opened is logged once. `clock` is monotonic
  // and lives as long as the process.
  explicit GpuMonitor(const std::string& uuid, Clock& clock = *Clock::Monotonic(),
                      const std::string& library = Nvml::kLibrary);
  // A call of the driver that hangs is waited for kEndLimit and then left alone.
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Read anew if they are older than kFresh, in at most kReadLimit: else the last ones, and
  // `answers` is false when those are older than kStale. None while the driver is being opened, and
  // where it cannot be.
  std::optional<GpuFigures> Read();

  static constexpr absl::Duration kFresh = absl::Seconds(1);
  static constexpr absl::Duration kStale = absl::Seconds(30);
  static constexpr absl::Duration kReadLimit = absl::Milliseconds(250);
  static constexpr absl::Duration kEndLimit = absl::Seconds(1);

 private:
  struct Shared;

  // Shared with the thread, which may outlive this within a call that hangs.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_GPU_MONITOR_H_
