// The backends of this machine: every instruction set of the host, and a GPU where there is one.
#include <string>
#include <utility>

#include "model/backend/backend.h"
#include "model/ops/cpu/cpu_ops.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

constexpr struct {
  DType dtype;
  const char* name;
} kTypes[] = {{DType::kF32, "f32"}, {DType::kBF16, "bf16"}, {DType::kF16, "f16"}};

absl::StatusOr<std::unique_ptr<Ops>> MakeCuda() {
  BackendOptions options;
  options.kind = BackendKind::kCuda;
  auto backend = CreateBackend(options);
  if (backend.ok()) return std::move(backend->ops);
  // A machine without a GPU, a driver or a toolkit is no fault; a backend that fails is.
  if (absl::IsInternal(backend.status()) || absl::IsInvalidArgument(backend.status())) {
    return backend.status();
  }
  return absl::UnavailableError(backend.status().message());
}

}  // namespace

std::vector<OpsCase> OpsCases() {
  std::vector<OpsCase> cases;
  for (const auto& [dtype, name] : kTypes) {
    for (const Isa isa : AvailableIsas()) {
      cases.push_back({.name = std::string(IsaName(isa)) + "_" + name,
                       .weights = dtype,
                       .make = [isa]() -> absl::StatusOr<std::unique_ptr<Ops>> {
                         return CpuOps::Create(2, isa);
                       }});
    }
    cases.push_back({.name = std::string("cuda_") + name, .weights = dtype, .make = MakeCuda});
  }
  return cases;
}

}  // namespace tlm
