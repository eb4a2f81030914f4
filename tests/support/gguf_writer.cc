#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"

namespace tlm {
namespace {

void Pad(std::string& text, uint64_t alignment) {
  text.resize((text.size() + alignment - 1) / alignment * alignment);
}

}  // namespace

std::string GgufText(std::string_view text) {
  return GgufBytes(uint64_t{text.size()}) + std::string(text);
}

uint32_t GgufNumberOf(DType dtype) {
  constexpr std::pair<DType, uint32_t> kNumbers[] = {
      {DType::kF32, 0},  {DType::kF16, 1},  {DType::kQ4_0, 2},   {DType::kQ4_1, 3},
      {DType::kQ5_0, 6}, {DType::kQ5_1, 7}, {DType::kQ8_0, 8},   {DType::kQ4K, 12},
      {DType::kQ5K, 13}, {DType::kQ6K, 14}, {DType::kIq4Nl, 20}, {DType::kI8, 24},
      {DType::kI32, 26}, {DType::kF64, 28}, {DType::kBF16, 30}};
  for (const auto& [known, number] : kNumbers) {
    if (known == dtype) return number;
  }
  TLM_CHECK(false);
}

void GgufWriter::SetText(std::string_view key, std::string_view text) {
  SetBytes(key, GgufType::kString, GgufText(text));
}

void GgufWriter::SetTexts(std::string_view key, const std::vector<std::string>& texts) {
  std::string bytes = GgufBytes(static_cast<uint32_t>(GgufType::kString));
  bytes += GgufBytes(uint64_t{texts.size()});
  for (const std::string& text : texts) bytes += GgufText(text);
  SetBytes(key, GgufType::kArray, bytes);
}

void GgufWriter::SetBytes(std::string_view key, GgufType type, std::string_view bytes) {
  std::string encoded = GgufBytes(static_cast<uint32_t>(type));
  encoded += bytes;
  const auto found = std::ranges::find(values_, key, &Value::key);
  if (found != values_.end()) {
    found->bytes = encoded;
  } else {
    values_.push_back({std::string(key), encoded});
  }
}

void GgufWriter::Remove(std::string_view key) {
  std::erase_if(values_, [key](const Value& value) { return value.key == key; });
}

void GgufWriter::Add(std::string_view name, DType dtype, const Shape& shape,
                     std::string_view bytes) {
  tensors_.push_back({std::string(name), dtype, shape, std::string(bytes)});
}

void GgufWriter::AddF32(std::string_view name, const Shape& shape,
                        const std::vector<float>& values) {
  Add(name, DType::kF32, shape,
      {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

void GgufWriter::Fill(std::string_view name, DType dtype, const Shape& shape) {
  Add(name, dtype, shape,
      std::string(StoredBytes(dtype, static_cast<size_t>(shape.elements())), '\0'));
}

void GgufWriter::RemoveTensor(std::string_view name) {
  std::erase_if(tensors_, [name](const Tensor& tensor) { return tensor.name == name; });
}

std::string GgufWriter::Bytes(uint32_t version, uint64_t alignment) const {
  std::string result = "GGUF" + GgufBytes(version) + GgufBytes(uint64_t{tensors_.size()}) +
                       GgufBytes(uint64_t{values_.size()});
  for (const Value& value : values_) result += GgufText(value.key) + value.bytes;
  std::string data;
  for (const Tensor& tensor : tensors_) {
    result += GgufText(tensor.name) + GgufBytes(static_cast<uint32_t>(tensor.shape.rank()));
    for (int axis = tensor.shape.rank() - 1; axis >= 0; --axis) {
      result += GgufBytes(static_cast<uint64_t>(tensor.shape[axis]));
    }
    Pad(data, alignment);
    result += GgufBytes(GgufNumberOf(tensor.dtype)) + GgufBytes(uint64_t{data.size()});
    data += tensor.bytes;
  }
  Pad(result, alignment);
  return result + data;
}

GgufWriter SmallGguf(const std::string& architecture, DType dtype) {
  constexpr int64_t kVocab = 50, kWidth = 32, kKv = 16, kInner = 64, kContext = 64;
  const bool is_gpt2 = architecture == "gpt2";
  GgufWriter writer;
  const auto key = [&architecture](const char* name) { return architecture + "." + name; };
  const auto norm = [&writer, is_gpt2](const std::string& name, int64_t size) {
    writer.Fill(name + ".weight", DType::kF32, {size});
    if (is_gpt2) writer.Fill(name + ".bias", DType::kF32, {size});
  };
  const auto linear = [&](const std::string& name, int64_t outputs, int64_t inputs, bool bias) {
    writer.Fill(name + ".weight", dtype, {outputs, inputs});
    if (bias) writer.Fill(name + ".bias", DType::kF32, {outputs});
  };
  writer.SetText("general.architecture", architecture);
  writer.Set<uint32_t>(key("block_count"), 2);
  writer.Set<uint32_t>(key("context_length"), kContext);
  writer.Set<uint32_t>(key("embedding_length"), kWidth);
  writer.Set<uint32_t>(key("feed_forward_length"), kInner);
  writer.Set<uint32_t>(key("attention.head_count"), 4);
  if (is_gpt2) {
    writer.Set<float>(key("attention.layer_norm_epsilon"), 1e-5f);
  } else {
    writer.Set<uint32_t>(key("attention.head_count_kv"), 2);
    writer.Set<float>(key("attention.layer_norm_rms_epsilon"), 1e-5f);
    writer.Set<float>(key("rope.freq_base"), 10000);
  }
  writer.Fill("token_embd.weight", dtype, {kVocab, kWidth});
  if (is_gpt2) writer.Fill("position_embd.weight", DType::kF32, {kContext, kWidth});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    norm(layer + "attn_norm", kWidth);
    if (is_gpt2) {
      linear(layer + "attn_qkv", 3 * kWidth, kWidth, true);
    } else {
      const bool bias = architecture == "qwen2";
      linear(layer + "attn_q", kWidth, kWidth, bias);
      linear(layer + "attn_k", kKv, kWidth, bias);
      linear(layer + "attn_v", kKv, kWidth, bias);
      linear(layer + "ffn_gate", kInner, kWidth, false);
    }
    if (architecture == "qwen3") {
      norm(layer + "attn_q_norm", kWidth / 4);
      norm(layer + "attn_k_norm", kWidth / 4);
    }
    linear(layer + "attn_output", kWidth, kWidth, is_gpt2);
    norm(layer + "ffn_norm", kWidth);
    linear(layer + "ffn_up", kInner, kWidth, is_gpt2);
    linear(layer + "ffn_down", kWidth, kInner, is_gpt2);
  }
  norm("output_norm", kWidth);
  return writer;
}

}  // namespace tlm
