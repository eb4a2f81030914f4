#include "tests/support/safetensors_writer.h"

#include <nlohmann/json.hpp>

#include "model/base/errors.h"

namespace tlm {

std::string SafetensorsBytes(std::string_view header, std::string_view data) {
  std::string result;
  for (int byte = 0; byte < 8; ++byte) {
    result += static_cast<char>((static_cast<uint64_t>(header.size()) >> (8 * byte)) & 0xffu);
  }
  return result.append(header).append(data);
}

void SafetensorsWriter::Add(std::string_view name, DType dtype, const Shape& shape,
                            std::string_view bytes) {
  TLM_CHECK(bytes.size() == static_cast<size_t>(shape.elements()) * DTypeBytes(dtype));
  tensors_.push_back({std::string(name), dtype, shape, data_.size(), data_.size() + bytes.size()});
  data_.append(bytes);
}

void SafetensorsWriter::AddF32(std::string_view name, const Shape& shape,
                               const std::vector<float>& values) {
  Add(name, DType::kF32, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

void SafetensorsWriter::Fill(std::string_view name, const Shape& shape, float value) {
  AddF32(name, shape, std::vector<float>(static_cast<size_t>(shape.elements()), value));
}

void SafetensorsWriter::SetMetadata(std::string_view key, std::string_view value) {
  metadata_[std::string(key)] = value;
}

std::string SafetensorsWriter::Bytes() const {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  for (const Tensor& tensor : tensors_) {
    nlohmann::json shape = nlohmann::json::array();
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) shape.push_back(tensor.shape[axis]);
    header[tensor.name] = {{"dtype", DTypeName(tensor.dtype)},
                           {"shape", shape},
                           {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return SafetensorsBytes(text, data_);
}

}  // namespace tlm
