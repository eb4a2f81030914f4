// Element types of tensors.
#ifndef TLM_MODEL_TENSOR_DTYPE_H_
#define TLM_MODEL_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace tlm {

enum class DType : uint8_t {
  kF64,
  kF32,
  kBF16,
  kF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kU64,
  kU32,
  kU16,
  kF8E4M3,
  kF8E5M2,
  // Blocks of quantised elements, along the innermost dimension: see blocks.h.
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Nl,
  kI4G32,
  kI4G64,
  kI4G128,
  kI4G256,
  kI8G32,
  kI8G64,
  kI8G128,
  kI8G256,
  // Blocks of 8-bit floats.
  kF8G32,
  kF8G128,
};

// A number of elements that are stored together, and their bytes.
struct DTypeBlock {
  size_t elements;
  size_t bytes;
};

// For each DType: its name in model files and messages, and one element or one block.
struct DTypeTraits {
  const char* name;
  DTypeBlock block;
};
inline constexpr DTypeTraits kDTypeTraits[] = {
    {"F64", {1, 8}},      {"F32", {1, 4}},         {"BF16", {1, 2}},        {"F16", {1, 2}},
    {"I64", {1, 8}},      {"I32", {1, 4}},         {"I16", {1, 2}},         {"I8", {1, 1}},
    {"U8", {1, 1}},       {"BOOL", {1, 1}},        {"U64", {1, 8}},         {"U32", {1, 4}},
    {"U16", {1, 2}},      {"F8_E4M3", {1, 1}},     {"F8_E5M2", {1, 1}},     {"Q8_0", {32, 34}},
    {"Q4_0", {32, 18}},   {"Q4_1", {32, 20}},      {"Q5_0", {32, 22}},      {"Q5_1", {32, 24}},
    {"Q4_K", {256, 144}}, {"Q5_K", {256, 176}},    {"Q6_K", {256, 210}},    {"IQ4_NL", {32, 18}},
    {"I4_G32", {32, 21}}, {"I4_G64", {64, 37}},    {"I4_G128", {128, 69}},  {"I4_G256", {256, 133}},
    {"I8_G32", {32, 37}}, {"I8_G64", {64, 69}},    {"I8_G128", {128, 133}}, {"I8_G256", {256, 261}},
    {"F8_G32", {32, 36}}, {"F8_G128", {128, 132}},
};
static_assert(std::size(kDTypeTraits) == static_cast<size_t>(DType::kF8G128) + 1);

constexpr bool IsBlockQuantised(DType dtype) { return dtype >= DType::kQ8_0; }
constexpr bool IsIntegerBlocks(DType dtype) {
  return IsBlockQuantised(dtype) && dtype < DType::kF8G32;
}
// The type of the elements once they leave their blocks: 8-bit floats with a scale lose next to
// nothing in BF16.
constexpr DType DequantisedType(DType blocks) {
  return IsIntegerBlocks(blocks) ? DType::kF32 : DType::kBF16;
}

// The block of a type that is not quantised in blocks is one element.
constexpr DTypeBlock BlockOf(DType dtype) { return kDTypeTraits[static_cast<size_t>(dtype)].block; }

// Bytes of one element; 0 for types quantised in blocks, whose elements take no whole number.
constexpr size_t DTypeBytes(DType dtype) {
  return IsBlockQuantised(dtype) ? 0 : BlockOf(dtype).bytes;
}

// Bytes of `elements` elements, a whole number of blocks.
constexpr size_t StoredBytes(DType dtype, size_t elements) {
  const DTypeBlock block = BlockOf(dtype);
  return elements / block.elements * block.bytes;
}

// For example "BF16" or "Q4_K".
constexpr const char* DTypeName(DType dtype) {
  return kDTypeTraits[static_cast<size_t>(dtype)].name;
}

// The floats that weights may be stored in. 8-bit floats are excluded: without the separate scales
// of a quantised checkpoint they are not weights.
constexpr bool IsFloat(DType dtype) { return dtype <= DType::kF16; }

// The types that keys and values may have, by the names of --kv_cache_dtype.
struct KvDType {
  DType dtype;
  const char* name;
};
inline constexpr KvDType kKvDTypes[] = {{DType::kF32, "float32"},
                                        {DType::kBF16, "bfloat16"},
                                        {DType::kF16, "float16"},
                                        {DType::kF8E4M3, "fp8"}};

// "?" for a type that keys and values cannot have.
constexpr const char* KvDTypeName(DType dtype) {
  for (const KvDType& type : kKvDTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return "?";
}
// Also accepts "fp8_e4m3", as vLLM spells it; returns nullopt for another name.
constexpr std::optional<DType> KvDTypeFromName(std::string_view name) {
  for (const KvDType& type : kKvDTypes) {
    if (name == type.name) return type.dtype;
  }
  if (name == "fp8_e4m3") return DType::kF8E4M3;
  return std::nullopt;
}

// The default type of keys and values on the CPU, for matrices of type `weights`: 16 bits if
// `weights` has 16 bits or fewer.
constexpr DType DefaultKvDType(DType weights) {
  switch (weights) {
    case DType::kF64:
    case DType::kF32:
      return DType::kF32;
    case DType::kF16:
      return DType::kF16;
    default:
      return DType::kBF16;
  }
}

// Bytes of a token's key, or of its value, for one kv head: 8-bit types add a scale (fp8.h).
constexpr size_t KvRowBytes(DType dtype, int64_t head_dim) {
  return static_cast<size_t>(head_dim) * DTypeBytes(dtype) + (dtype == DType::kF8E4M3 ? 1 : 0);
}

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_DTYPE_H_
