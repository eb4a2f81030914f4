#include "model/ops/cpu/epilogue.h"

#include <optional>

#include "model/base/errors.h"
#include "model/ops/cpu/packed_matrix.h"

namespace tlm {
namespace {

ElementFunction FunctionOf(std::optional<Activation> activation) {
  if (!activation.has_value()) return ElementFunction::kNone;
  switch (*activation) {
    case Activation::kSilu:
      return ElementFunction::kSilu;
    case Activation::kRelu:
      return ElementFunction::kRelu;
    case Activation::kGeluTanh:
      return ElementFunction::kGeluTanh;
    case Activation::kGelu:
      return ElementFunction::kGelu;
  }
  TLM_CHECK(false);
}

}  // namespace

EpilogueArgs EpilogueArgsOf(const Epilogue& epilogue, const Rows& out) {
  return {.bias = epilogue.bias,
          .function = FunctionOf(epilogue.activation),
          .outputs = out.cols,
          .out = out.data,
          .out_type = StorageOf(out.dtype),
          .out_stride = out.stride};
}

EpilogueArgs GatedEpilogueArgsOf(const float* bias, const Rows& out) {
  return {.bias = bias,
          .gated = true,
          .outputs = out.cols,
          .out = out.data,
          .out_type = StorageOf(out.dtype),
          .out_stride = out.stride};
}

}  // namespace tlm
