#include "model/weights/check_finite.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

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

// As FirstNonFinite, large tensors by several threads: a check of a model on its way to a GPU must
// not take longer than the way.
template <typename Bits>
int64_t FirstNonFiniteOfAll(const Bits* elements, int64_t count, Bits exponent) {
  constexpr int64_t kPieceElements = int64_t{4} << 20;
  const int64_t pieces = (count + kPieceElements - 1) / kPieceElements;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> first{count};
  const auto work = [&] {
    for (int64_t piece = next++; piece < pieces; piece = next++) {
      const int64_t begin = piece * kPieceElements;
      const int64_t size = std::min(kPieceElements, count - begin);
      const int64_t found = FirstNonFinite(elements + begin, size, exponent);
      if (found == size) continue;
      int64_t before = first;
      while (begin + found < before && !first.compare_exchange_weak(before, begin + found)) {
      }
      return;  // pieces are handed out rising: the rest of them comes later
    }
  };
  std::vector<std::jthread> helpers;
  const int64_t wanted = std::min<int64_t>(pieces, std::thread::hardware_concurrency());
  try {
    while (static_cast<int64_t>(helpers.size()) + 1 < wanted) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads to be had: those there are do it.
  }
  work();
  helpers.clear();
  return first;
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
      index = FirstNonFiniteOfAll<uint64_t>(tensor.as<uint64_t>(), count, 0x7ff0'0000'0000'0000u);
      if (index < count) value = std::bit_cast<double>(tensor.as<uint64_t>()[index]);
      break;
    case DType::kF32:
      index = FirstNonFiniteOfAll<uint32_t>(tensor.as<uint32_t>(), count, 0x7f80'0000u);
      if (index < count) value = std::bit_cast<float>(tensor.as<uint32_t>()[index]);
      break;
    case DType::kBF16:
      index = FirstNonFiniteOfAll<uint16_t>(tensor.as<uint16_t>(), count, 0x7f80u);
      if (index < count) value = Bf16ToFloat(tensor.as<uint16_t>()[index]);
      break;
    case DType::kF16:
      index = FirstNonFiniteOfAll<uint16_t>(tensor.as<uint16_t>(), count, 0x7c00u);
      if (index < count) value = F16ToFloat(tensor.as<uint16_t>()[index]);
      break;
    default:
      return InvalidArgument("tensor {} is {}, which has no test for finite values", Quoted(name),
                             DTypeName(tensor.dtype));
  }
  return index < count ? Report(tensor, name, index, value) : absl::OkStatus();
}

}  // namespace tlm
