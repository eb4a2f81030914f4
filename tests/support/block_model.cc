#include "tests/support/block_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>

#include "model/base/float16.h"
#include "model/tensor/blocks.h"
#include "model/weights/name_map.h"
#include "tests/support/small_config.h"

namespace tlm {
namespace {

// The offsets of the binary16 numbers in a GGUF block.
struct Halves {
  size_t scale = 0;
  size_t min = 0;           // 0: none
  float min_factor = 0.0f;  // relative to the scale, such that the elements' mean is about 0
};

Halves HalvesOf(DType type) {
  switch (type) {
    case DType::kQ4_1:
      return {0, 2, -7.5f};
    case DType::kQ5_1:
      return {0, 2, -15.5f};
    case DType::kQ4K:
      return {0, 2, 7.5f};
    case DType::kQ5K:
      return {0, 2, 15.5f};
    case DType::kQ6K:
      return {208, 0, 0.0f};
    default:
      return {};
  }
}

void WriteHalf(float value, std::byte* to) {
  const uint16_t half = FloatToF16(value);
  std::memcpy(to, &half, sizeof(half));
}

void SetScale(DType type, float scale, std::byte* block) {
  const Halves halves = HalvesOf(type);
  WriteHalf(scale, block + halves.scale);
  if (halves.min > 0) WriteHalf(scale * halves.min_factor, block + halves.min);
}

void FillOwnBlock(DType type, float scale, std::mt19937_64& random, std::byte* block) {
  BlockValues values{};
  const uint32_t most = FormatOf(type).bits == 4 ? 15 : 255;
  for (size_t i = 0; i < BlockOf(type).elements; ++i) {
    values.q[i] = static_cast<uint8_t>(random() % (most + 1));
  }
  values.scale = scale;
  values.zero = static_cast<int>(most / 2 + random() % 2);
  WriteBlock(type, values, block);
}

void FillFloat8Block(float scale, std::mt19937_64& random, std::span<uint8_t> q, std::byte* block) {
  for (uint8_t& bits : q) {
    bits = static_cast<uint8_t>(random());
    if ((bits & 0x7f) > 0x70) bits ^= 0x20;  // up to 128, and no NaN
  }
  WriteF8Block(scale, q, block);
}

float Rms(std::span<const float> values) {
  double sum = 0.0;
  for (const float value : values) sum += double{value} * value;
  return static_cast<float>(std::sqrt(sum / static_cast<double>(values.size())));
}

// Returns the first of `types`, from `begin` on, whose blocks divide `inputs`; F32 if there is
// none.
DType FittingType(const std::vector<DType>& types, size_t begin, int64_t inputs) {
  for (size_t i = 0; i < types.size(); ++i) {
    const DType type = types[(begin + i) % types.size()];
    if (static_cast<size_t>(inputs) % BlockOf(type).elements == 0) return type;
  }
  return DType::kF32;
}

}  // namespace

std::vector<std::byte> RandomBlocks(DType type, size_t blocks, float rms, std::mt19937_64& random) {
  const DTypeBlock block = BlockOf(type);
  std::vector<std::byte> bytes(blocks * block.bytes);
  const bool is_own = type >= DType::kI4G32;
  std::vector<float> elements(block.elements);
  std::vector<uint8_t> floats(block.elements);
  std::uniform_real_distribution<float> spread(0.5f, 1.5f);
  for (size_t i = 0; i < blocks; ++i) {
    std::byte* const to = bytes.data() + i * block.bytes;
    if (!IsIntegerBlocks(type)) {
      FillFloat8Block(rms * spread(random) / 32.0f, random, floats, to);
      continue;
    }
    if (is_own) {
      const float largest = FormatOf(type).bits == 4 ? 8.0f : 128.0f;
      FillOwnBlock(type, rms * spread(random) * std::sqrt(3.0f) / largest, random, to);
      continue;
    }
    std::generate(to, to + block.bytes, [&random] { return static_cast<std::byte>(random()); });
    SetScale(type, 1.0f, to);
    Dequantise(type, to, 1, elements.data());
    SetScale(type, rms * spread(random) / Rms(elements), to);
  }
  return bytes;
}

ModelConfig BlockConfig(std::string_view name) {
  ModelConfig config = SmallConfig(name);
  if (config.naming == TensorNaming::kGpt2) config.naming = TensorNaming::kGgufGpt2;
  config.d_model = 256;
  config.head_dim = 192 / config.num_heads;
  config.d_ff = 288;
  return config;
}

std::vector<DType> GgufBlockTypes() {
  return {DType::kQ4K,  DType::kQ8_0, DType::kQ6K,   DType::kQ4_0, DType::kQ5K,
          DType::kQ5_1, DType::kQ4_1, DType::kIq4Nl, DType::kQ5_0};
}

std::vector<DType> OwnBlockTypes() {
  return {DType::kI4G128, DType::kI8G32,  DType::kI4G64,  DType::kI8G256,
          DType::kI4G32,  DType::kI8G128, DType::kI4G256, DType::kI8G64};
}

std::vector<DType> Float8BlockTypes() { return {DType::kF8G128, DType::kF8G32}; }

std::vector<DType> IntegerBlockTypes() {
  std::vector<DType> types = GgufBlockTypes();
  const std::vector<DType> own = OwnBlockTypes();
  types.insert(types.end(), own.begin(), own.end());
  return types;
}

BlockModel::BlockModel(const ModelConfig& config, const std::vector<DType>& types, uint64_t seed,
                       bool reordered)
    : random_(config, DType::kF32, seed),
      weights_(random_.weights()),
      dequantised_(random_.weights()) {
  std::mt19937_64 random(seed);
  size_t next = 0;
  for (const TensorSpec& spec : ExpectedTensors(config)) {
    if (spec.shape.rank() != 2) continue;
    const DType type = FittingType(types, next++, spec.shape[1]);
    if (type != DType::kF32) Replace(spec, type, reordered, random);
  }
  if (!config.tie_word_embeddings) return;
  weights_.lm_head = weights_.token_embedding;
  dequantised_.lm_head = dequantised_.token_embedding;
}

void BlockModel::Replace(const TensorSpec& spec, DType type, bool reordered,
                         std::mt19937_64& random) {
  const auto elements = static_cast<size_t>(spec.shape.elements());
  const auto k = static_cast<size_t>(spec.shape[1]);
  const TensorView given = *PlaceOf(spec, &weights_);
  Blocks& blocks = *blocks_.emplace_back(std::make_unique<Blocks>());
  const size_t count = elements / BlockOf(type).elements;
  blocks.bytes = RandomBlocks(type, count, Rms({given.as<float>(), elements}), random);
  blocks.values.resize(elements);
  TensorView view{type, spec.shape, blocks.bytes.data()};
  Dequantise(type, blocks.bytes.data(), count, blocks.values.data());
  if (reordered && type >= DType::kI4G32 && IsIntegerBlocks(type)) {
    blocks.input_order.resize(k);
    std::iota(blocks.input_order.begin(), blocks.input_order.end(), 0);
    std::shuffle(blocks.input_order.begin(), blocks.input_order.end(), random);
    view.input_order = blocks.input_order.data();
    const std::vector<float> stored = blocks.values;
    for (size_t i = 0; i < elements; ++i) {
      blocks.values[i / k * k + static_cast<size_t>(blocks.input_order[i % k])] = stored[i];
    }
  }
  *PlaceOf(spec, &weights_) = view;
  *PlaceOf(spec, &dequantised_) = {DType::kF32, spec.shape, blocks.values.data()};
}

}  // namespace tlm
