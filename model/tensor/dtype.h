// Element types of tensors.
#ifndef TLM_MODEL_TENSOR_DTYPE_H_
#define TLM_MODEL_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>
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
  // Of floats of 8 bits.
  kF8G32,
  kF8G128,
};

// A number of elements that are stored together, and their bytes.
struct DTypeBlock {
  size_t elements;
  size_t bytes;
};

constexpr bool IsBlockQuantised(DType dtype) { return dtype >= DType::kQ8_0; }
constexpr bool IsIntegerBlocks(DType dtype) {
  return IsBlockQuantised(dtype) && dtype < DType::kF8G32;
}
// The type of such elements where they do not stay in blocks: floats of 8 bits with a scale lose
// next to nothing in BF16.
constexpr DType DequantisedType(DType blocks) {
  return IsIntegerBlocks(blocks) ? DType::kF32 : DType::kBF16;
}

// Bytes of one element; 0 of types that are quantised in blocks, which have no whole number.
constexpr size_t DTypeBytes(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return 1;
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ4K:
    case DType::kQ5K:
    case DType::kQ6K:
    case DType::kIq4Nl:
    case DType::kI4G32:
    case DType::kI4G64:
    case DType::kI4G128:
    case DType::kI4G256:
    case DType::kI8G32:
    case DType::kI8G64:
    case DType::kI8G128:
    case DType::kI8G256:
    case DType::kF8G32:
    case DType::kF8G128:
      break;
  }
  return 0;
}

// One element, of types that are not quantised in blocks.
constexpr DTypeBlock BlockOf(DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return {32, 34};
    case DType::kQ4_0:
    case DType::kIq4Nl:
      return {32, 18};
    case DType::kQ4_1:
      return {32, 20};
    case DType::kQ5_0:
      return {32, 22};
    case DType::kQ5_1:
      return {32, 24};
    case DType::kQ4K:
      return {256, 144};
    case DType::kQ5K:
      return {256, 176};
    case DType::kQ6K:
      return {256, 210};
    case DType::kI4G32:
      return {32, 21};
    case DType::kI4G64:
      return {64, 37};
    case DType::kI4G128:
      return {128, 69};
    case DType::kI4G256:
      return {256, 133};
    case DType::kI8G32:
      return {32, 37};
    case DType::kI8G64:
      return {64, 69};
    case DType::kI8G128:
      return {128, 133};
    case DType::kI8G256:
      return {256, 261};
    case DType::kF8G32:
      return {32, 36};
    case DType::kF8G128:
      return {128, 132};
    default:
      return {1, DTypeBytes(dtype)};
  }
}

// Bytes of `elements`, a whole number of blocks.
constexpr size_t StoredBytes(DType dtype, size_t elements) {
  const DTypeBlock block = BlockOf(dtype);
  return elements / block.elements * block.bytes;
}

// The name as model files and messages spell it: "BF16", "Q4_K".
constexpr const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI16:
      return "I16";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kBool:
      return "BOOL";
    case DType::kU64:
      return "U64";
    case DType::kU32:
      return "U32";
    case DType::kU16:
      return "U16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E5M2:
      return "F8_E5M2";
    case DType::kQ8_0:
      return "Q8_0";
    case DType::kQ4_0:
      return "Q4_0";
    case DType::kQ4_1:
      return "Q4_1";
    case DType::kQ5_0:
      return "Q5_0";
    case DType::kQ5_1:
      return "Q5_1";
    case DType::kQ4K:
      return "Q4_K";
    case DType::kQ5K:
      return "Q5_K";
    case DType::kQ6K:
      return "Q6_K";
    case DType::kIq4Nl:
      return "IQ4_NL";
    case DType::kI4G32:
      return "I4_G32";
    case DType::kI4G64:
      return "I4_G64";
    case DType::kI4G128:
      return "I4_G128";
    case DType::kI4G256:
      return "I4_G256";
    case DType::kI8G32:
      return "I8_G32";
    case DType::kI8G64:
      return "I8_G64";
    case DType::kI8G128:
      return "I8_G128";
    case DType::kI8G256:
      return "I8_G256";
    case DType::kF8G32:
      return "F8_G32";
    case DType::kF8G128:
      return "F8_G128";
  }
  return "?";
}

// The floats that weights may be stored in. The 8-bit ones stay out: without the scales a quantised
// checkpoint keeps beside them they are not weights.
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

// "?" of a type that they cannot have.
constexpr const char* KvDTypeName(DType dtype) {
  for (const KvDType& type : kKvDTypes) {
    if (type.dtype == dtype) return type.name;
  }
  return "?";
}
// Also of "fp8_e4m3", as vLLM spells it; nullopt for another name.
constexpr std::optional<DType> KvDTypeFromName(std::string_view name) {
  for (const KvDType& type : kKvDTypes) {
    if (name == type.name) return type.dtype;
  }
  if (name == "fp8_e4m3") return DType::kF8E4M3;
  return std::nullopt;
}

// The default type of keys and values on the CPU, for matrices of type `weights`: 16 bits where
// those have 16 or fewer.
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

// Bytes of a token's key, or of its value, for one kv head: 8-bit ones have a scale (fp8.h).
constexpr size_t KvRowBytes(DType dtype, int64_t head_dim) {
  return static_cast<size_t>(head_dim) * DTypeBytes(dtype) + (dtype == DType::kF8E4M3 ? 1 : 0);
}

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_DTYPE_H_
