#include "model/backend/backend.h"

#include <utility>

#include "model/base/errors.h"
#include "model/ops/cpu/cpu_ops.h"

namespace tlm {

absl::StatusOr<Backend> CreateBackend(BackendKind kind, int threads) {
  if (kind == BackendKind::kCuda) {
    return Unimplemented("backend cuda is not in this build; use cpu or auto");
  }
  TLM_ASSIGN_OR_RETURN(std::unique_ptr<CpuOps> ops, CpuOps::Create(threads));
  const char* const why =
      kind == BackendKind::kCpu ? "as asked" : "this build has no other backend";
  std::string reason = fmt::format("backend cpu, {}: {}", why, ops->device().info().name);
  return Backend{.ops = std::move(ops), .reason = std::move(reason)};
}

}  // namespace tlm
