#include "model/ops/cuda/arithmetic_check.h"

#include <fmt/format.h>

#include <string>

#include "model/base/errors.h"
#include "model/base/sha256.h"
#include "model/ops/cuda/arithmetic_parts.h"

namespace tlm {

absl::StatusOr<ArithmeticCheck> CheckArithmetic(CudaDevice& device,
                                                const ArithmeticQuestion& question) {
  ArithmeticCheck check;
  if (question.activations == DType::kF32) return check;
  TLM_RETURN_IF_ERROR(device.MakeCurrent());
  ArithmeticFindings findings;
  TLM_RETURN_IF_ERROR(CheckProducts(device, question.activations, &findings));
  if (question.head_dim > 0) {
    TLM_RETURN_IF_ERROR(CheckAttention(device, question.activations, question.head_dim,
                                       question.fp8_cache, &findings));
  }
  std::erase(findings.faults, "");
  check.unknown = findings.unknown;
  check.fault = fmt::format("{}", fmt::join(findings.faults, "; "));
  constexpr size_t kDigits = 16;
  TLM_ASSIGN_OR_RETURN(check.probe, Sha256Hex(findings.bits));
  check.probe.resize(kDigits);
  return check;
}

}  // namespace tlm
