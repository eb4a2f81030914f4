#include "model/ops/cuda/weights/weight_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/tensor/float_elements.h"

namespace tlm {
namespace {

// Rows that are read together: in a matrix whose first dimension is the inputs, neighbouring
// outputs share cache lines.
constexpr size_t kGroup = 32;
constexpr int64_t kSquare = 32;  // inputs of these rows that are read together
constexpr uint32_t kF32Exponent = 0x7f800000;

// A float that is rounded to bfloat16.
struct RoundedBf16 {
  uint16_t bits;
};

template <typename From, typename To>
To Load(const std::byte* at) {
  const typename From::Bits bits = LoadElement<From>(at);
  if constexpr (std::is_same_v<To, float>) {
    return From::Value(bits);
  } else if constexpr (std::is_same_v<To, RoundedBf16>) {
    return {FloatToBf16(From::Value(bits))};
  } else {
    static_assert(std::is_same_v<To, typename From::Bits>);
    return bits;
  }
}

template <typename To, typename Body>
void WithSource(DType from, const Body& body) {
  WithFloatElement(from, [&]<typename From>() { body.template operator()<From, To>(); });
}

// Calls body.operator()<From, To>() for elements of type `from` that are stored as `to`, which is
// `from`, kF32 or kBF16. 16-bit elements that keep their type are copied as bits.
template <typename Body>
void WithTypes(DType from, DType to, const Body& body) {
  if (to == DType::kF32) return WithSource<float>(from, body);
  if (to == from) return body.template operator()<Bf16Element, uint16_t>();
  WithSource<RoundedBf16>(from, body);
}

void CopyConsecutive(const std::byte* from, DType dtype, int64_t count, DType stored, void* out) {
  if (dtype == stored) {
    std::memcpy(out, from, static_cast<size_t>(count) * DTypeBytes(dtype));
    return;
  }
  WithTypes(dtype, stored, [&]<typename From, typename To>() {
    To* const to = static_cast<To*>(out);
    constexpr auto kBytes = static_cast<int64_t>(sizeof(typename From::Bits));
    for (int64_t i = 0; i < count; ++i) to[i] = Load<From, To>(from + i * kBytes);
  });
}

// Returns the index of the first element whose exponent is all ones (infinity or NaN), or `count`.
// The inner loop has no early exit, so that it vectorises.
template <typename Element, typename Bits>
int64_t FindNonFinite(const Element* elements, int64_t count, Bits exponent) {
  const auto non_finite = [exponent](Element element) {
    return (std::bit_cast<Bits>(element) & exponent) == exponent;
  };
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    Bits found = 0;
    for (int64_t i = begin; i < end; ++i) found |= static_cast<Bits>(non_finite(elements[i]));
    if (found != 0) return std::find_if(elements + begin, elements + end, non_finite) - elements;
  }
  return count;
}

}  // namespace

DType StoredType(std::span<const TensorView> parts) {
  const DType first = parts.front().dtype;
  const bool alike = std::all_of(parts.begin(), parts.end(),
                                 [first](const TensorView& part) { return part.dtype == first; });
  return alike && (first == DType::kBF16 || first == DType::kF16) ? first : DType::kF32;
}

absl::Status NonFiniteError(const NonFinite& found, const TensorView& part) {
  return InvalidArgument("part {} {} {}: element {} is {}", found.part, DTypeName(part.dtype),
                         part.shape.ToString(), found.element, found.value);
}

std::optional<NonFinite> ReadFloats(const TensorView& part, std::span<float> out) {
  const int64_t count = part.elements();
  TLM_CHECK(IsFloat(part.dtype) && static_cast<int64_t>(out.size()) == count);
  CopyConsecutive(part.as<std::byte>(), part.dtype, count, DType::kF32, out.data());
  const int64_t index = FindNonFinite(out.data(), count, kF32Exponent);
  if (index == count) return std::nullopt;
  return NonFinite{.part = 0, .element = index, .value = out[static_cast<size_t>(index)]};
}

WeightRows::WeightRows(std::span<const TensorView> parts, MatrixOrder order, DType stored)
    : parts_(parts.begin(), parts.end()), order_(order), stored_(stored) {
  TLM_CHECK(stored == DType::kF32 || stored == DType::kBF16 || stored == StoredType(parts));
  const int outputs_axis = order == MatrixOrder::kOutputsFirst ? 0 : 1;
  k_ = parts.front().shape[1 - outputs_axis];
  for (const TensorView& part : parts) {
    TLM_CHECK(part.shape.rank() == 2 && part.shape[1 - outputs_axis] == k_ && IsFloat(part.dtype));
    n_ += part.shape[outputs_axis];
  }
}

WeightRows::Source WeightRows::Find(int64_t output) const {
  if (output < 0) return {};
  const bool outputs_first = order_ == MatrixOrder::kOutputsFirst;
  for (size_t index = 0; index < parts_.size(); ++index) {
    const TensorView& part = parts_[index];
    const int64_t outputs = part.shape[outputs_first ? 0 : 1];
    if (output < outputs) {
      const int64_t element = outputs_first ? output * k_ : output;
      return {.data = part.as<std::byte>() + static_cast<size_t>(element) * DTypeBytes(part.dtype),
              .dtype = part.dtype,
              .stride = outputs_first ? 1 : outputs,
              .part = index,
              .element = element};
    }
    output -= outputs;
  }
  TLM_CHECK(false);
}

std::optional<NonFinite> WeightRows::Read(std::span<const int64_t> outputs, int64_t row_stride,
                                          void* out) const {
  const size_t row_bytes = static_cast<size_t>(row_stride) * DTypeBytes(stored_);
  const size_t used_bytes = static_cast<size_t>(k_) * DTypeBytes(stored_);
  for (size_t first = 0; first < outputs.size(); first += kGroup) {
    const size_t count = std::min(kGroup, outputs.size() - first);
    std::byte* const rows = static_cast<std::byte*>(out) + first * row_bytes;
    std::array<Source, kGroup> sources;
    for (size_t r = 0; r < count; ++r) sources[r] = Find(outputs[first + r]);
    if (order_ == MatrixOrder::kInputsFirst) {
      ReadColumns(std::span(sources).first(count), row_bytes, rows);
    }
    for (size_t r = 0; r < count; ++r) {
      const Source& source = sources[r];
      std::byte* const row = rows + r * row_bytes;
      const size_t used = source.data == nullptr ? 0 : used_bytes;
      std::memset(row + used, 0, row_bytes - used);
      if (source.data == nullptr) continue;
      if (order_ == MatrixOrder::kOutputsFirst) {
        CopyConsecutive(source.data, source.dtype, k_, stored_, row);
      }
      // Checks here, while the row is in the cache.
      const auto found = CheckRow(source, row);
      if (found.has_value()) return found;
    }
  }
  return std::nullopt;
}

// Transposes square by square through a small buffer: neighbouring outputs are read from one cache
// line, and every row is written a line at a time.
void WeightRows::ReadColumns(std::span<const Source> sources, size_t row_bytes,
                             std::byte* rows) const {
  const size_t element = DTypeBytes(stored_);
  for (int64_t begin = 0; begin < k_; begin += kSquare) {
    const auto inputs = static_cast<size_t>(std::min<int64_t>(k_ - begin, kSquare));
    for (size_t r = 0; r < sources.size();) {
      // Outputs of one part.
      size_t end = r;
      while (end < sources.size() && sources[end].dtype == sources[r].dtype &&
             sources[end].stride == sources[r].stride &&
             (sources[end].data == nullptr) == (sources[r].data == nullptr)) {
        ++end;
      }
      if (sources[r].data != nullptr) {
        WithTypes(sources[r].dtype, stored_, [&]<typename From, typename To>() {
          ReadSquare<From, To>(sources.subspan(r, end - r), begin, inputs,
                               rows + r * row_bytes + static_cast<size_t>(begin) * element,
                               row_bytes);
        });
      }
      r = end;
    }
  }
}

template <typename From, typename To>
void WeightRows::ReadSquare(std::span<const Source> sources, int64_t begin, size_t inputs,
                            std::byte* out, size_t row_bytes) {
  To square[kGroup][kSquare];
  const auto step = sources.front().stride * static_cast<int64_t>(sizeof(typename From::Bits));
  for (size_t i = 0; i < inputs; ++i) {
    const int64_t offset = (begin + static_cast<int64_t>(i)) * step;
    for (size_t r = 0; r < sources.size(); ++r) {
      square[r][i] = Load<From, To>(sources[r].data + offset);
    }
  }
  for (size_t r = 0; r < sources.size(); ++r) {
    std::memcpy(out + r * row_bytes, square[r], inputs * sizeof(To));
  }
}

std::optional<NonFinite> WeightRows::CheckRow(const Source& source, const std::byte* row) const {
  int64_t index = k_;
  if (stored_ == DType::kF32) {
    index = FindNonFinite(reinterpret_cast<const float*>(row), k_, kF32Exponent);
  } else {
    const uint16_t exponent = stored_ == DType::kBF16 ? 0x7f80 : 0x7c00;
    index = FindNonFinite(reinterpret_cast<const uint16_t*>(row), k_, exponent);
  }
  if (index == k_) return std::nullopt;
  return NonFinite{.part = source.part,
                   .element = source.element + index * source.stride,
                   .value = FloatAt(row, stored_, index)};
}

}  // namespace tlm
