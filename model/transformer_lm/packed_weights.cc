#include "model/transformer_lm/packed_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/base/float16.h"
#include "model/base/json.h"
#include "model/tensor/blocks.h"
#include "model/weights/check_finite.h"
#include "model/weights/name_map.h"
#include "model/weights/parallel_pieces.h"

namespace tlm {
namespace {

using Views = std::span<const TensorView>;

// A thread dequantises this many elements at a time, or one row if a row has more.
constexpr int64_t kElementsAtOnce = int64_t{1} << 16;

// Up to this value no scale of a block overflows float32 in a product.
constexpr double kMaxInBlocks = 1e36;

// Matrices with the same inputs that are packed as one matrix.
struct Stack {
  std::vector<TensorView> parts;
  MatrixOrder order = MatrixOrder::kOutputsFirst;
  MatrixUse use = MatrixUse::kPlain;
  MatrixPlace place = MatrixPlace::kTable;
  std::span<const float> importance = {};  // by input; empty: not measured

  // The number of outputs and of inputs of a part.
  int64_t n(const TensorView& part) const {
    return part.shape[order == MatrixOrder::kOutputsFirst ? 0 : 1];
  }
  int64_t k(const TensorView& part) const {
    return part.shape[order == MatrixOrder::kOutputsFirst ? 1 : 0];
  }
  bool HasBlocks() const {
    return std::any_of(parts.begin(), parts.end(),
                       [](const TensorView& part) { return IsBlockQuantised(part.dtype); });
  }
};

struct LayerStacks {
  LayerStacks(const ModelConfig& config, const LayerWeights& layer) {
    const bool fused = layer.qkv.data != nullptr;
    const bool gated = layer.gate.data != nullptr;
    qkv.parts = fused ? std::vector{layer.qkv} : std::vector{layer.q, layer.k, layer.v};
    qkv.place = attention.place = MatrixPlace::kAttention;
    up.place = down.place = MatrixPlace::kFeedForward;
    attention.parts = {layer.o};
    up.parts = gated ? std::vector{layer.gate, layer.up} : std::vector{layer.up};
    up.use = gated ? MatrixUse::kGated : MatrixUse::kPlain;
    down.parts = {layer.down};
    const auto order_of = [&config](TensorRole role) {
      return IsInputsFirst(config.naming, role) ? MatrixOrder::kInputsFirst
                                                : MatrixOrder::kOutputsFirst;
    };
    qkv.order = order_of(fused ? TensorRole::kQkv : TensorRole::kQ);
    attention.order = order_of(TensorRole::kO);
    up.order = order_of(TensorRole::kUp);
    down.order = order_of(TensorRole::kDown);
  }

  Stack qkv, attention, up, down;
};

// The matrices of all products. A tied head is the embedding.
std::vector<Stack> StacksOf(const ModelConfig& config, const ModelWeights& weights) {
  std::vector<Stack> stacks = {{{weights.token_embedding}}};
  if (!config.tie_word_embeddings) stacks.push_back({{weights.lm_head}});
  for (const LayerWeights& layer : weights.layers) {
    LayerStacks of_layer(config, layer);
    for (Stack* const stack : {&of_layer.qkv, &of_layer.attention, &of_layer.up, &of_layer.down}) {
      stacks.push_back(std::move(*stack));
    }
  }
  return stacks;
}

// Decides how the matrices of a model are stored.
class StorageRule {
 public:
  StorageRule(const std::vector<Stack>& stacks, WeightFormat format, const Ops& ops)
      : format_(format), ops_(ops), type_(TypeOf(stacks)) {}
  StorageRule(const PackingPlan& plan, const Ops& ops)
      : format_(plan.format), ops_(ops), type_(plan.matrix_type) {}

  WeightFormat FormatOf(const Stack& stack) const { return FormatIn(stack.place, format_); }
  // See PackingPlan::matrix_type.
  DType type() const { return type_; }
  bool Quantises() const { return BlockTypeOf(format_).has_value(); }
  // Whether the parts in blocks are dequantised before packing.
  bool Dequantises(const Stack& stack) const { return stack.HasBlocks() && !StaysInBlocks(stack); }
  // Whether floats next to matrices in blocks are rounded to activations of 16 bits.
  bool Rounds() const { return type_ == DType::kI8 && ops_.ActivationType(type_) == DType::kBF16; }
  // A model with matrices of several types runs in float32. Where float32 activations need float32
  // matrices, the others are widened.
  bool Widens(const Stack& stack) const {
    if (format_ == WeightFormat::kFloat32) return true;
    if (Rounds()) return false;
    const DType activations = ops_.ActivationType(type_);
    if (ops_.TakesFloatRows() && activations == DType::kF32) return false;
    return std::any_of(stack.parts.begin(), stack.parts.end(), [&](const TensorView& part) {
      return ops_.ActivationType(GivenType(stack, part)) != activations;
    });
  }
  // Bytes on the device: an upper bound for parts in blocks, without padding for others.
  // `as_given`: floats are neither widened nor rounded nor quantised.
  uint64_t DeviceBytes(const Stack& stack, bool as_given = false) const;
  // The type to which a part in blocks is dequantised.
  DType DequantisedAs(const TensorView& part) const {
    return format_ == WeightFormat::kFloat32 ? DType::kF32 : DequantisedType(part.dtype);
  }
  // Bytes on the host for the dequantised parts.
  uint64_t HostBytes(const Stack& stack) const {
    uint64_t bytes = 0;
    for (const TensorView& part : stack.parts) {
      if (!IsBlockQuantised(part.dtype) || !Dequantises(stack)) continue;
      bytes += static_cast<uint64_t>(part.elements()) * DTypeBytes(DequantisedAs(part));
    }
    return bytes;
  }

 private:
  bool StaysInBlocks(const Stack& stack) const {
    return stack.HasBlocks() && format_ != WeightFormat::kFloat32 &&
           ops_.TakesBlocks(stack.parts, stack.use);
  }
  // The type in which PackMatrix stores a part that is neither widened nor quantised.
  DType GivenType(const Stack& stack, const TensorView& part) const {
    if (IsBlockQuantised(part.dtype)) {
      return StaysInBlocks(stack) ? part.dtype : DequantisedAs(part);
    }
    return part.dtype == DType::kF64 ? DType::kF32 : part.dtype;
  }
  DType TypeOf(const std::vector<Stack>& stacks) const;

  const WeightFormat format_;
  const Ops& ops_;
  const DType type_;
};

DType StorageRule::TypeOf(const std::vector<Stack>& stacks) const {
  if (Quantises()) return DType::kI8;
  if (format_ == WeightFormat::kFloat32) return DType::kF32;
  std::optional<DType> common;
  bool differ = false;
  for (const Stack& stack : stacks) {
    if (StaysInBlocks(stack)) return DType::kI8;
    for (const TensorView& part : stack.parts) {
      const DType dtype = GivenType(stack, part);
      differ |= common.value_or(dtype) != dtype;
      common = dtype;
    }
  }
  return differ ? DType::kF32 : common.value_or(DType::kF32);
}

uint64_t StorageRule::DeviceBytes(const Stack& stack, bool as_given) const {
  // Bytes per element of float parts.
  size_t widest = !as_given && Widens(stack) ? sizeof(float) : 0;
  for (const TensorView& part : stack.parts) {
    widest = std::max(widest, DTypeBytes(GivenType(stack, part)));
  }
  if (!as_given && Rounds()) widest = DTypeBytes(DType::kBF16);
  uint64_t bytes = 0;
  for (const TensorView& part : stack.parts) {
    const DType given = GivenType(stack, part);
    const bool quantises = !as_given && !IsBlockQuantised(given);
    const DType type = quantises ? BlockTypeOf(FormatOf(stack)).value_or(given) : given;
    bytes += IsBlockQuantised(type) ? ops_.BlockMatrixBytes(type, stack.n(part), stack.k(part))
                                    : static_cast<uint64_t>(part.elements()) * widest;
  }
  return bytes;
}

void Store(std::span<const float> row, DType type, int64_t first, std::byte* out) {
  if (type == DType::kF32) {
    std::ranges::copy(row, reinterpret_cast<float*>(out) + first);
  } else {
    std::ranges::transform(row, reinterpret_cast<uint16_t*>(out) + first, FloatToBf16);
  }
}

// Dequantises a matrix in blocks to F32 or BF16, with its inputs in their natural order, by several
// threads. `out` takes all elements.
void DequantiseMatrix(const TensorView& matrix, DType type, std::byte* out) {
  const int64_t rows = matrix.shape[0];
  const int64_t k = matrix.shape[1];
  const size_t row_bytes = StoredBytes(matrix.dtype, static_cast<size_t>(k));
  const size_t row_blocks = static_cast<size_t>(k) / BlockOf(matrix.dtype).elements;
  const int64_t rows_at_once = std::max<int64_t>(1, kElementsAtOnce / std::max<int64_t>(1, k));
  ForEachPiece((rows + rows_at_once - 1) / rows_at_once, 0, [&](int64_t piece) {
    const int64_t end = std::min((piece + 1) * rows_at_once, rows);
    std::vector<float> stored(static_cast<size_t>(k));
    std::vector<float> ordered(matrix.input_order == nullptr ? 0 : stored.size());
    for (int64_t row = piece * rows_at_once; row < end; ++row) {
      const std::byte* const from = matrix.as<std::byte>() + static_cast<size_t>(row) * row_bytes;
      Dequantise(matrix.dtype, from, row_blocks, stored.data());
      for (size_t i = 0; i < ordered.size(); ++i) {
        ordered[static_cast<size_t>(matrix.input_order[i])] = stored[i];
      }
      Store(ordered.empty() ? stored : ordered, type, row * k, out);
    }
  });
}

// Matrices or vectors, dequantised if they are in blocks.
class DequantisedParts {
 public:
  // Returns RESOURCE_EXHAUSTED if the host has too little memory.
  static absl::StatusOr<DequantisedParts> Of(Views parts, const StorageRule& storage) {
    DequantisedParts result;
    for (const TensorView& part : parts) {
      result.views.push_back(part);
      if (!IsBlockQuantised(part.dtype)) continue;
      const DType type = storage.DequantisedAs(part);
      const size_t bytes = static_cast<size_t>(part.elements()) * DTypeBytes(type);
      std::byte* const memory = new (std::nothrow) std::byte[bytes];
      if (memory == nullptr) {
        return ResourceExhausted("{} bytes of host memory for a matrix in {} are not there", bytes,
                                 DTypeName(type));
      }
      result.memory_.emplace_back(memory);
      TensorView matrix = part;
      if (part.shape.rank() == 1) matrix.shape = {1, part.shape[0]};
      DequantiseMatrix(matrix, type, memory);
      result.views.back() = {type, part.shape, memory};
    }
    return result;
  }

  std::vector<TensorView> views;

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

struct Packer {
  const ModelConfig& config;
  const ModelWeights& weights;
  const StorageRule& storage;
  Ops& ops;

  // Returns the result of `pack`, called while `parts` are in memory. A backend that checks values
  // while it packs knows no names: its INVALID_ARGUMENT is replaced by a status with the tensor's
  // name.
  template <typename Pack>
  auto WhileAcquired(Views parts, Pack pack) const -> decltype(pack()) {
    if (weights.pager != nullptr) TLM_RETURN_IF_ERROR(weights.pager->Acquire(parts));
    auto packed = pack();
    if (absl::IsInvalidArgument(packed.status())) return NameRefused(parts, packed.status());
    if (weights.pager != nullptr) weights.pager->Release(parts);
    return packed;
  }

  // Returns INVALID_ARGUMENT that names the first tensor among `parts` with a value that is not
  // finite. If all are finite, it names the tensor with the largest value, because scales of blocks
  // overflow before their values do.
  absl::Status NameRefused(Views parts, const absl::Status& refused) const {
    std::string name;
    LargestElement largest;
    for (const TensorSpec& spec : weights.specs) {
      const TensorView& tensor = TensorOf(spec, weights);
      const bool is_part = std::any_of(parts.begin(), parts.end(),
                                       [&](const TensorView& p) { return p.data == tensor.data; });
      if (!is_part) continue;
      TLM_RETURN_IF_ERROR(CheckFinite(tensor, spec.name));
      const LargestElement of_tensor = FindLargest(tensor);
      if (!name.empty() && std::fabs(of_tensor.value) <= std::fabs(largest.value)) continue;
      name = spec.name;
      largest = of_tensor;
    }
    if (name.empty()) return refused;
    return WithField(InvalidArgument("tensor {}: element {} is {}; in blocks of 8 bits or fewer "
                                     "weights must be below {}",
                                     Quoted(name), largest.index, largest.value, kMaxInBlocks),
                     name);
  }

  absl::StatusOr<std::unique_ptr<Matrix>> Pack(const Stack& stack) const {
    return WhileAcquired(stack.parts, [&] {
      if (storage.Quantises()) {
        return ops.PackMatrix(stack.parts, stack.order, stack.use, storage.FormatOf(stack),
                              stack.importance);
      }
      return PackGiven(stack, storage.Widens(stack),
                       storage.Rounds() ? WeightFormat::kBFloat16 : WeightFormat::kAsGiven);
    });
  }

  // Position tables are read by the row, and few: they are packed as given, whatever the format.
  absl::StatusOr<std::unique_ptr<Matrix>> PackPositions(const TensorView& table) const {
    return WhileAcquired({&table, 1},
                         [&] { return PackGiven({{table}}, false, WeightFormat::kAsGiven); });
  }

  // Packs without quantising. `widened`: as float32, by stacking with an empty part of that type.
  // `format` applies to floats that are not widened.
  absl::StatusOr<std::unique_ptr<Matrix>> PackGiven(const Stack& stack, bool widened,
                                                    WeightFormat format) const {
    DequantisedParts dequantised;
    std::vector<TensorView> given = stack.parts;
    if (storage.Dequantises(stack)) {
      TLM_ASSIGN_OR_RETURN(dequantised, DequantisedParts::Of(stack.parts, storage));
      given = dequantised.views;
    }
    if (widened) {
      const int64_t k = stack.k(stack.parts.front());
      const bool outputs_first = stack.order == MatrixOrder::kOutputsFirst;
      given.push_back({DType::kF32, outputs_first ? Shape{0, k} : Shape{k, 0}});
    }
    return ops.PackMatrix(given, stack.order, stack.use, format);
  }

  // Returns an empty buffer if the configuration has no such tensors.
  absl::StatusOr<Buffer> PackVectors(Views parts) const {
    if (parts.front().data == nullptr) return Buffer();
    return WhileAcquired(parts, [&]() -> absl::StatusOr<Buffer> {
      TLM_ASSIGN_OR_RETURN(const DequantisedParts floats, DequantisedParts::Of(parts, storage));
      return ops.PackVector(floats.views);
    });
  }

  absl::StatusOr<PackedNorm> PackNorm(const TensorView& gain, const TensorView& bias) const {
    PackedNorm norm;
    TLM_ASSIGN_OR_RETURN(norm.gain, PackVectors({&gain, 1}));
    TLM_ASSIGN_OR_RETURN(norm.bias, PackVectors({&bias, 1}));
    return norm;
  }

  // Packs linear maps of the same input as one, with their biases end to end.
  absl::StatusOr<PackedLinear> PackLinear(const Stack& stack, Views biases) const {
    PackedLinear linear;
    TLM_ASSIGN_OR_RETURN(linear.matrix, Pack(stack));
    TLM_ASSIGN_OR_RETURN(linear.bias, PackVectors(biases));
    return linear;
  }

  absl::StatusOr<PackedLayer> PackLayer(const LayerWeights& layer,
                                        const InputImportance::Layer& importance) const;
};

absl::StatusOr<PackedLayer> Packer::PackLayer(const LayerWeights& layer,
                                              const InputImportance::Layer& importance) const {
  LayerStacks stacks(config, layer);
  stacks.qkv.importance = importance.qkv;
  stacks.attention.importance = importance.attention;
  stacks.up.importance = importance.up;
  stacks.down.importance = importance.down;
  const bool fused = layer.qkv.data != nullptr;
  const bool gated = layer.gate.data != nullptr;
  const auto qkv_biases =
      fused ? std::vector{layer.qkv_bias} : std::vector{layer.q_bias, layer.k_bias, layer.v_bias};
  const auto up_biases =
      gated ? std::vector{layer.gate_bias, layer.up_bias} : std::vector{layer.up_bias};
  PackedLayer packed;
  TLM_ASSIGN_OR_RETURN(packed.attention_norm, PackNorm(layer.attn_norm, layer.attn_norm_bias));
  TLM_ASSIGN_OR_RETURN(packed.qkv, PackLinear(stacks.qkv, qkv_biases));
  TLM_ASSIGN_OR_RETURN(packed.q_norm, PackVectors({&layer.q_norm, 1}));
  TLM_ASSIGN_OR_RETURN(packed.k_norm, PackVectors({&layer.k_norm, 1}));
  TLM_ASSIGN_OR_RETURN(packed.attention, PackLinear(stacks.attention, {&layer.o_bias, 1}));
  TLM_ASSIGN_OR_RETURN(packed.ffn_norm, PackNorm(layer.ffn_norm, layer.ffn_norm_bias));
  TLM_ASSIGN_OR_RETURN(packed.up, PackLinear(stacks.up, up_biases));
  TLM_ASSIGN_OR_RETURN(packed.down, PackLinear(stacks.down, {&layer.down_bias, 1}));
  return packed;
}

}  // namespace

PackingPlan PlanPacking(const ModelConfig& config, const ModelWeights& weights, WeightFormat format,
                        const Ops& ops) {
  const std::vector<Stack> stacks = StacksOf(config, weights);
  const StorageRule storage(stacks, format, ops);
  PackingPlan plan{.format = format, .matrix_type = storage.type()};
  for (const Stack& stack : stacks) {
    plan.device += storage.DeviceBytes(stack);
    plan.host = std::max(plan.host, storage.HostBytes(stack));
  }
  if (config.learned_positions) {
    plan.device += storage.DeviceBytes({{weights.position_embedding}}, /*as_given=*/true);
  }
  for (const TensorSpec& spec : weights.specs) {
    if (spec.shape.rank() > 1) continue;
    plan.device += static_cast<uint64_t>(spec.shape.elements()) * sizeof(float);
  }
  return plan;
}

absl::StatusOr<PackedWeights> PackWeights(const ModelConfig& config, const ModelWeights& weights,
                                          const PackingPlan& plan, Ops& ops,
                                          const InputImportance* importance) {
  const StorageRule storage(plan, ops);
  if (storage.Quantises() && !ops.TakesWeights(plan.format)) {
    return Unimplemented("{} weights on backend {}", WeightFormatName(plan.format),
                         ops.device().info().backend);
  }
  const Packer packer{config, weights, storage, ops};
  PackedWeights packed;
  // Packs the largest first: an acquired tensor takes memory in addition to the packed ones.
  InputImportance none;
  none.layers.resize(weights.layers.size());
  const InputImportance& of = importance != nullptr ? *importance : none;
  TLM_CHECK(of.layers.size() == weights.layers.size());
  Stack embedding{.parts = {weights.token_embedding}};
  if (config.tie_word_embeddings) embedding.importance = of.head;
  TLM_ASSIGN_OR_RETURN(packed.token_embedding, packer.Pack(embedding));
  if (!config.tie_word_embeddings) {
    TLM_ASSIGN_OR_RETURN(packed.lm_head,
                         packer.Pack({.parts = {weights.lm_head}, .importance = of.head}));
  }
  if (config.learned_positions) {
    TLM_ASSIGN_OR_RETURN(packed.position_embedding,
                         packer.PackPositions(weights.position_embedding));
  }
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(PackedLayer packed_layer,
                         packer.PackLayer(weights.layers[i], of.layers[i]));
    packed.layers.push_back(std::move(packed_layer));
  }
  TLM_ASSIGN_OR_RETURN(packed.final_norm,
                       packer.PackNorm(weights.final_norm, weights.final_norm_bias));
  return packed;
}

std::map<DType, uint64_t> BytesByType(const PackedWeights& weights) {
  std::map<DType, uint64_t> bytes;
  const auto add_matrix = [&bytes](const std::unique_ptr<Matrix>& matrix) {
    if (matrix == nullptr) return;
    for (const auto& [dtype, part] : matrix->BytesByType()) bytes[dtype] += part;
  };
  const auto add_vector = [&bytes](const Buffer& vector) {
    if (vector.bytes() > 0) bytes[DType::kF32] += vector.bytes();
  };
  const auto add_norm = [&add_vector](const PackedNorm& norm) {
    add_vector(norm.gain);
    add_vector(norm.bias);
  };
  add_matrix(weights.token_embedding);
  add_matrix(weights.position_embedding);
  add_matrix(weights.lm_head);
  add_norm(weights.final_norm);
  for (const PackedLayer& layer : weights.layers) {
    add_norm(layer.attention_norm);
    add_norm(layer.ffn_norm);
    add_vector(layer.q_norm);
    add_vector(layer.k_norm);
    for (const PackedLinear* const linear :
         {&layer.qkv, &layer.attention, &layer.up, &layer.down}) {
      add_matrix(linear->matrix);
      add_vector(linear->bias);
    }
  }
  return bytes;
}

}  // namespace tlm
