// The op tests on the CUDA backend, its kernels emulated (tests/support/simt).
#include "model/ops/cuda/cuda_ops.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {

std::vector<OpsCase> OpsCases() {
  std::vector<OpsCase> cases;
  const auto add = [&cases](const char* name, DType weights) {
    cases.push_back({.name = name,
                     .weights = weights,
                     .emulated = true,
                     .make = []() -> absl::StatusOr<std::unique_ptr<Ops>> {
                       return CudaOps::Create(CudaOptions(), nullptr);
                     }});
  };
  add("emulated_f32", DType::kF32);
  add("emulated_bf16", DType::kBF16);
  add("emulated_f16", DType::kF16);
  return cases;
}

}  // namespace tlm
