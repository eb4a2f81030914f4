// Writes valid GGUF files and, where a test supplies the bytes of a value, invalid ones.
#ifndef TLM_TESTS_SUPPORT_GGUF_WRITER_H_
#define TLM_TESTS_SUPPORT_GGUF_WRITER_H_

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Returns a number as the file stores it, little-endian.
template <typename T>
std::string GgufBytes(T number) {
  static_assert(std::is_arithmetic_v<T>);
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}
// Returns a text with its length in front.
std::string GgufText(std::string_view text);

// Returns the file's type for values of T.
template <typename T>
constexpr GgufType GgufTypeFor() {
  if constexpr (std::same_as<T, bool>) return GgufType::kBool;
  if constexpr (std::same_as<T, float>) return GgufType::kFloat32;
  if constexpr (std::same_as<T, double>) return GgufType::kFloat64;
  if constexpr (std::same_as<T, uint8_t>) return GgufType::kUint8;
  if constexpr (std::same_as<T, int8_t>) return GgufType::kInt8;
  if constexpr (std::same_as<T, uint16_t>) return GgufType::kUint16;
  if constexpr (std::same_as<T, int16_t>) return GgufType::kInt16;
  if constexpr (std::same_as<T, int32_t>) return GgufType::kInt32;
  if constexpr (std::same_as<T, uint64_t>) return GgufType::kUint64;
  if constexpr (std::same_as<T, int64_t>) return GgufType::kInt64;
  return GgufType::kUint32;
}

// Returns the file's number for this type.
uint32_t GgufNumberOf(DType dtype);

// Collects metadata and tensors; tensors are laid out in the order of their addition. A key that is
// set again keeps its place; a tensor name that is added several times is written several times.
class GgufWriter {
 public:
  template <typename T>
  void Set(std::string_view key, T number) {
    SetBytes(key, GgufTypeFor<T>(), GgufBytes(number));
  }
  template <typename T>
  void SetArray(std::string_view key, const std::vector<T>& numbers) {
    std::string bytes;
    for (const T number : numbers) bytes += GgufBytes(number);
    SetBytes(key, GgufType::kArray,
             GgufBytes(static_cast<uint32_t>(GgufTypeFor<T>())) +
                 GgufBytes(uint64_t{numbers.size()}) + bytes);
  }
  void SetText(std::string_view key, std::string_view text);
  void SetTexts(std::string_view key, const std::vector<std::string>& texts);
  // `bytes` is everything after the type.
  void SetBytes(std::string_view key, GgufType type, std::string_view bytes);
  void Remove(std::string_view key);

  // `bytes` is not checked.
  void Add(std::string_view name, DType dtype, const Shape& shape, std::string_view bytes);
  void AddF32(std::string_view name, const Shape& shape, const std::vector<float>& values);
  // Adds zeros of any type.
  void Fill(std::string_view name, DType dtype, const Shape& shape);
  void RemoveTensor(std::string_view name);

  // Tensors begin at multiples of `alignment`.
  std::string Bytes(uint32_t version = 3, uint64_t alignment = 32) const;

 private:
  struct Value {
    std::string key;
    std::string bytes;  // with the type
  };
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
    std::string bytes;
  };
  std::vector<Value> values_;
  std::vector<Tensor> tensors_;
};

// Returns the metadata and the tensors, all zeros, of a small model: `architecture` is llama,
// qwen2, qwen3 or gpt2, with 2 layers, 4 heads of 8 elements (2 for keys and values; gpt2: 4), 64
// elements in the feed-forward network, a vocabulary of 50 and a context of 64. Matrices are of
// type `dtype`; rows have 32 or 64 elements. The LM head is tied, and there is no tokenizer.
GgufWriter SmallGguf(const std::string& architecture, DType dtype = DType::kF32);

// The header of a file in memory.
struct GgufInMemory {
  explicit GgufInMemory(const GgufWriter& writer)
      : file(writer.Bytes()), header(ParseGgufHeader(std::as_bytes(std::span(file)))) {}

  const std::string file;  // what the header refers to
  const absl::StatusOr<GgufHeader> header;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_GGUF_WRITER_H_
