// Reads metrics of this process's GPU from NVIDIA's driver. Its library, NVML, is opened at run
// time, because machines without a GPU do not have it.
#ifndef TLM_SERVER_OBSERVE_NVML_H_
#define TLM_SERVER_OBSERVE_NVML_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tlm {

// Values that are nullopt are not reported by the GPU or its driver.
struct GpuFigures {
  bool answers = false;  // false: the driver reports no GPU any more, or hangs; then no values
  std::string uuid;
  std::string driver;                        // the driver's version
  std::optional<double> utilization;         // 0 to 1
  std::optional<double> memory_utilization;  // the memory controller's, 0 to 1
  std::optional<double> memory_used_bytes;   // bytes used by all processes
  std::optional<double> memory_total_bytes;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<double> temperature_celsius;
  std::optional<double> sm_clock_hertz;
  std::optional<uint64_t> clock_reasons;  // NVML's bits
  std::optional<double> ecc_uncorrected;  // since the driver was loaded
  std::optional<double> pcie_replays;     // since the driver was loaded
  std::optional<int64_t> xid_errors;      // since Open
  std::optional<int64_t> last_xid;        // nullopt: no error
};

// Why clocks are lower than they could be: a bit of GpuFigures::clock_reasons and its label.
struct ClockReason {
  uint64_t bit;
  const char* name;
};
inline constexpr ClockReason kClockReasons[] = {
    {0x1, "idle"},        {0x2, "application_clocks"}, {0x4, "power_cap"},
    {0x8, "hw_slowdown"}, {0x10, "sync_boost"},        {0x20, "sw_thermal"},
    {0x40, "hw_thermal"}, {0x80, "hw_power_brake"},    {0x100, "display_clocks"},
};

// Not thread-safe. Calls can take long, or hang when the GPU does: see GpuMonitor.
class Nvml {
 public:
  static constexpr char kLibrary[] = "libnvidia-ml.so.1";

  // Opens the GPU, or the instance of a GPU (MIG), with this UUID from DeviceInfo: NVML and CUDA
  // number GPUs differently. FAILED_PRECONDITION when there is no such library, it lacks functions,
  // or the driver does not start or does not know the UUID. The library is never closed. `library`
  // is trusted: opening it runs its code.
  static absl::StatusOr<std::unique_ptr<Nvml>> Open(const std::string& uuid,
                                                    const std::string& library = kLibrary);
  ~Nvml();

  // An instance has its own memory and utilization; the other values are the whole GPU's. Logs each
  // Xid error (a fault of the GPU, by NVIDIA's number) that came since the last call.
  GpuFigures Read();

 private:
  struct Api;

  Nvml(std::string uuid, std::unique_ptr<Api> api);
  absl::Status FindDevice();
  void ListenForXids();
  void ReadXids();

  const std::string uuid_;
  const std::unique_ptr<Api> api_;
  std::string driver_;
  void* instance_ = nullptr;  // the GPU itself if it is not divided
  void* gpu_ = nullptr;
  void* events_ = nullptr;  // null: Xid errors are not reported
  int64_t xid_errors_ = 0;
  std::optional<int64_t> last_xid_;
};

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_NVML_H_
