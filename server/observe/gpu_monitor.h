// Reads metrics of the GPU for scrapes, which wait for the driver only for a limited time.
#ifndef TLM_SERVER_OBSERVE_GPU_MONITOR_H_
#define TLM_SERVER_OBSERVE_GPU_MONITOR_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "model/base/clock.h"
#include "server/observe/nvml.h"

namespace tlm {

// Thread-safe. Only its own thread calls the driver, and only when metrics are read.
class GpuMonitor {
 public:
  // Opens the GPU with the `uuid` that Nvml::Open takes. Logs once why it cannot be opened. `clock`
  // is monotonic and lives as long as the process.
  explicit GpuMonitor(const std::string& uuid, Clock& clock = *Clock::Monotonic(),
                      const std::string& library = Nvml::kLibrary);
  // Waits kEndLimit for a hanging call of the driver, then abandons it.
  ~GpuMonitor();
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;

  // Reads new values if the last ones are older than kFresh and the driver answers within
  // kReadLimit. Otherwise returns the last values, with `answers` false when they are older than
  // kStale. nullopt while the driver is being opened, and when it cannot be.
  std::optional<GpuFigures> Read();

  static constexpr absl::Duration kFresh = absl::Seconds(1);
  static constexpr absl::Duration kStale = absl::Seconds(30);
  static constexpr absl::Duration kReadLimit = absl::Milliseconds(250);
  static constexpr absl::Duration kEndLimit = absl::Seconds(1);

 private:
  struct Shared;

  // Shared with the thread, which may outlive this object in a hanging call.
  const std::shared_ptr<Shared> shared_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_GPU_MONITOR_H_
