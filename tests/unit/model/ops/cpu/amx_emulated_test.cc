// The op tests on the kernels of amx_bf16, with emulated AMX tiles (tests/support/amx).
#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "model/ops/cpu/cpu_ops.h"
#include "tests/support/amx/emulated_kernels.h"
#include "tests/unit/model/ops/ops_fixture.h"

namespace tlm {
namespace {

absl::StatusOr<std::unique_ptr<Ops>> Make(bool vectors_agree) {
  const std::vector<Isa> isas = AvailableIsas();
  if (std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16) == isas.end()) {
    return absl::UnavailableError("this machine cannot run avx512_bf16");
  }
  return CpuOps::CreateWith(2, Isa::kAmxBf16, EmulatedAmxKernels(vectors_agree));
}

}  // namespace

std::vector<OpsCase> OpsCases() {
  std::vector<OpsCase> cases;
  for (const bool vectors_agree : {false, true}) {
    cases.push_back({.name = vectors_agree ? "amx_emulated_vectors" : "amx_emulated_tiles",
                     .weights = DType::kBF16,
                     .emulated = true,
                     .make = [vectors_agree] { return Make(vectors_agree); }});
  }
  return cases;
}

}  // namespace tlm
