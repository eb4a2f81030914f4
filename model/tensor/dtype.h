// Element types of tensors.
#ifndef TLM_MODEL_TENSOR_DTYPE_H_
#define TLM_MODEL_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>

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
};

// Bytes of one element.
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
  }
  return 0;
}

// The name as safetensors files and messages spell it: "BF16".
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
  }
  return "?";
}

// The floats that weights may be stored in. The 8-bit ones stay out: without the scales a quantised
// checkpoint keeps beside them they are not weights.
constexpr bool IsFloat(DType dtype) { return dtype <= DType::kF16; }

// The default type of keys and values on the CPU, for matrices of type `weights`: 16 bits where
// those have 16 or fewer.
constexpr DType DefaultKvDType(DType weights) {
  switch (weights) {
    case DType::kBF16:
    case DType::kI8:
      return DType::kBF16;
    case DType::kF16:
      return DType::kF16;
    default:
      return DType::kF32;
  }
}

}  // namespace tlm

#endif  // TLM_MODEL_TENSOR_DTYPE_H_
