// The host's memory as a device.
#ifndef TLM_MODEL_OPS_CPU_CPU_DEVICE_H_
#define TLM_MODEL_OPS_CPU_CPU_DEVICE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "model/ops/device.h"

namespace tlm {

// Copies are immediate, and RunCaptured only runs `fn`. Any thread may call Allocate and
// AllocatedBytes.
class CpuDevice : public Device {
 public:
  // `name` describes processor, threads and instruction set; `arithmetic` is the instruction set.
  CpuDevice(const std::string& name, std::string_view arithmetic);

  const DeviceInfo& info() const override { return info_; }
  void set_arithmetic_probe(std::string probe) { info_.arithmetic_probe = std::move(probe); }
  absl::StatusOr<Buffer> Allocate(size_t bytes, MemoryPurpose purpose) override;
  std::array<size_t, kMemoryPurposes> AllocatedBytes() const override;
  // The amount of this process's memory in large pages, for display: "1190 MiB in large pages".
  std::string LargePages() const;
  absl::Status CopyToDevice(void* to, const void* from, size_t bytes) override;
  absl::Status CopyToHost(void* to, const void* from, size_t bytes) override;
  absl::Status CopyOnDevice(void* to, const void* from, size_t bytes) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status RunCaptured(uint64_t key, const std::function<absl::Status()>& fn) override {
    return fn();
  }

 private:
  DeviceInfo info_;
  std::array<std::atomic<size_t>, kMemoryPurposes> allocated_{};
};

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_CPU_DEVICE_H_
