#include "model/weights/check_finite.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tensor/blocks.h"
#include "model/tensor/float_elements.h"
#include "model/weights/parallel_pieces.h"

namespace tlm {
namespace {

// Returns the index of the first element whose bits without the sign are at least `limit`, the bits
// of infinity, or `count`. The inner loop has no exit, so that the compiler vectorises it.
template <typename Bits>
int64_t FirstFrom(const Bits* elements, int64_t count, Bits limit) {
  constexpr int64_t kBlock = 4096;
  constexpr Bits kMagnitude = std::numeric_limits<Bits>::max() >> 1;
  const auto non_finite = [limit](Bits bits) { return (bits & kMagnitude) >= limit; };
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>(non_finite(elements[i]));
    if (found != 0) return std::find_if(elements + begin, elements + end, non_finite) - elements;
  }
  return count;
}

// Calls `first` with the tensor's elements as integers of their width and the bits of infinity; for
// F64, the bits of the least value that is infinite as a float. Returns 0 for other types.
template <typename First>
int64_t OfBits(const TensorView& tensor, First first) {
  switch (tensor.dtype) {
    case DType::kF64:
      return first(tensor.as<uint64_t>(), uint64_t{0x47ef'ffff'f000'0000u});
    case DType::kF32:
      return first(tensor.as<uint32_t>(), uint32_t{0x7f80'0000u});
    case DType::kBF16:
      return first(tensor.as<uint16_t>(), uint16_t{0x7f80u});
    case DType::kF16:
      return first(tensor.as<uint16_t>(), uint16_t{0x7c00u});
    default:
      return 0;
  }
}

// FirstNonFinite for a tensor in blocks.
int64_t FirstNonFiniteInBlocks(const TensorView& tensor) {
  constexpr size_t kElements = 16 * kMaxBlockElements;  // at a time
  const DTypeBlock block = BlockOf(tensor.dtype);
  const auto count = static_cast<size_t>(tensor.elements());
  float elements[kElements];
  for (size_t begin = 0; begin < count; begin += kElements) {
    const size_t size = std::min(kElements, count - begin);
    Dequantise(tensor.dtype, tensor.as<std::byte>() + StoredBytes(tensor.dtype, begin),
               size / block.elements, elements);
    const int64_t found = FirstNonFinite({DType::kF32, {static_cast<int64_t>(size)}, elements});
    if (found < static_cast<int64_t>(size)) return static_cast<int64_t>(begin) + found;
  }
  return tensor.elements();
}

double ValueAt(const TensorView& tensor, int64_t index) {
  if (IsBlockQuantised(tensor.dtype)) {
    const auto at = static_cast<size_t>(index);
    const DTypeBlock block = BlockOf(tensor.dtype);
    float elements[kMaxBlockElements];
    Dequantise(tensor.dtype, tensor.as<std::byte>() + at / block.elements * block.bytes, 1,
               elements);
    return elements[at % block.elements];
  }
  return DoubleAt(tensor.data, tensor.dtype, index);
}

}  // namespace

int64_t FirstNonFinite(const TensorView& tensor) {
  if (IsBlockQuantised(tensor.dtype)) return FirstNonFiniteInBlocks(tensor);
  return OfBits(tensor, [&](const auto* elements, auto limit) {
    return FirstFrom(elements, tensor.elements(), limit);
  });
}

absl::Status CheckFinite(const TensorView& tensor, const std::string& name) {
  if (!IsFloat(tensor.dtype) && !IsBlockQuantised(tensor.dtype)) {
    return InvalidArgument("tensor {} is {}, which has no test for finite values", Quoted(name),
                           DTypeName(tensor.dtype));
  }
  const int64_t count = tensor.elements();
  constexpr int64_t kPieceElements = int64_t{4} << 20;
  const int64_t pieces = (count + kPieceElements - 1) / kPieceElements;
  std::atomic<int64_t> first{count};
  ForEachPiece(pieces, 0, [&](int64_t piece) {
    const int64_t begin = piece * kPieceElements;
    if (begin > first) return;
    const int64_t size = std::min(kPieceElements, count - begin);
    const int64_t found = FirstNonFinite(
        {tensor.dtype,
         {size},
         tensor.as<std::byte>() + StoredBytes(tensor.dtype, static_cast<size_t>(begin))});
    int64_t before = first;
    while (found < size && begin + found < before &&
           !first.compare_exchange_weak(before, begin + found)) {
    }
  });
  if (first == count) return absl::OkStatus();
  return WithField(InvalidArgument("tensor {} {}: element {} is {}", Quoted(name),
                                   tensor.shape.ToString(), first.load(), ValueAt(tensor, first)),
                   name);
}

LargestElement FindLargest(const TensorView& tensor) {
  LargestElement largest;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = ValueAt(tensor, i);
    if (std::fabs(value) > std::fabs(largest.value)) largest = {i, value};
  }
  return largest;
}

}  // namespace tlm
