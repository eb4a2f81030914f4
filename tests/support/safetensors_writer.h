// Writes valid safetensors files and, where a test supplies the header, invalid ones.
#ifndef TLM_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
#define TLM_TESTS_SUPPORT_SAFETENSORS_WRITER_H_

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Joins header length, header and data in the format's layout; the header is not checked.
std::string SafetensorsBytes(std::string_view header, std::string_view data);

// Collects tensors. They are laid out in the order of their addition; the header is padded so that
// the data begin at a multiple of 8 bytes.
class SafetensorsWriter {
 public:
  // `bytes` must have the length of dtype and shape.
  void Add(std::string_view name, DType dtype, const Shape& shape, std::string_view bytes);
  void AddF32(std::string_view name, const Shape& shape, const std::vector<float>& values);
  // Adds an F32 tensor with every element equal to `value`.
  void Fill(std::string_view name, const Shape& shape, float value);
  void SetMetadata(std::string_view key, std::string_view value);

  std::string Bytes() const;

 private:
  struct Tensor {
    std::string name;
    DType dtype;
    Shape shape;
    size_t begin;
    size_t end;
  };
  std::vector<Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
  std::string data_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_SAFETENSORS_WRITER_H_
