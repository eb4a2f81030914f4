#include "model/backend/backend.h"

#include <string_view>
#include <utility>

#include "model/backend/cuda_backend.h"
#include "model/base/errors.h"
#include "model/ops/cpu/cpu_ops.h"

namespace tlm {
namespace {

Backend Chosen(std::unique_ptr<Ops> ops, std::string_view why) {
  const DeviceInfo& device = ops->device().info();
  std::string reason = fmt::format("backend {}: {}{}{}; {}", device.backend, device.name,
                                   device.uuid.empty() ? "" : ", ", device.uuid, why);
  return {.ops = std::move(ops), .reason = std::move(reason)};
}

}  // namespace

absl::StatusOr<Backend> CreateBackend(const BackendOptions& options) {
  std::string why = "as asked";
  if (options.kind != BackendKind::kCpu) {
    absl::StatusOr<std::unique_ptr<Ops>> cuda = OpenCudaBackend(options.cuda_module, options.cuda);
    if (cuda.ok()) {
      return Chosen(*std::move(cuda), options.kind == BackendKind::kCuda ? why : "it is there");
    }
    if (options.kind == BackendKind::kCuda) return WithContext(cuda.status(), "backend cuda");
    why = fmt::format("not cuda: {}", std::string(cuda.status().message()));
  }
  TLM_ASSIGN_OR_RETURN(
      std::unique_ptr<CpuOps> cpu,
      CpuOps::Create(
          {.threads = options.threads, .isa = options.isa, .pin_threads = options.pin_threads}));
  return Chosen(std::move(cpu), why);
}

}  // namespace tlm
