#include "model/weights/check_finite.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/base/json.h"

namespace tlm {
namespace {

// The index of the first element whose exponent bits are all ones, which is what infinities and
// NaNs have in common; `count` when there is none. The inner loop has no exit, so that it is done
// many elements at a time.
template <typename Bits>
int64_t FirstNonFinite(const Bits* elements, int64_t count, Bits exponent) {
  constexpr int64_t kBlock = 4096;
  const auto non_finite = [exponent](Bits bits) { return (bits & exponent) == exponent; };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>(non_finite(elements[i]));
    if (found != 0) return std::find_if(elements + begin, elements + end, non_finite) - elements;
  }
  return count;
}

absl::Status Report(const TensorView& tensor, const std::string& name, int64_t index,
                    double value) {
  return InvalidArgument("tensor {} {}: element {} is {}", Quoted(name), tensor.shape.ToString(),
                         index, value);
}

}  // namespace

absl::Status CheckFinite(const TensorView& tensor, const std::string& name) {
  const int64_t count = tensor.elements();
  int64_t index = count;
  double value = 0;
  switch (tensor.dtype) {
    case DType::kF64:
      index = FirstNonFinite<uint64_t>(tensor.as<uint64_t>(), count, 0x7ff0'0000'0000'0000u);
      if (index < count) value = std::bit_cast<double>(tensor.as<uint64_t>()[index]);
      break;
    case DType::kF32:
      index = FirstNonFinite<uint32_t>(tensor.as<uint32_t>(), count, 0x7f80'0000u);
      if (index < count) value = std::bit_cast<float>(tensor.as<uint32_t>()[index]);
      break;
    case DType::kBF16:
      index = FirstNonFinite<uint16_t>(tensor.as<uint16_t>(), count, 0x7f80u);
      if (index < count) value = Bf16ToFloat(tensor.as<uint16_t>()[index]);
      break;
    case DType::kF16:
      index = FirstNonFinite<uint16_t>(tensor.as<uint16_t>(), count, 0x7c00u);
      if (index < count) value = F16ToFloat(tensor.as<uint16_t>()[index]);
      break;
    default:
      return InvalidArgument("tensor {} is {}, which has no test for finite values", Quoted(name),
                             DTypeName(tensor.dtype));
  }
  return index < count ? Report(tensor, name, index, value) : absl::OkStatus();
}

}  // namespace tlm
