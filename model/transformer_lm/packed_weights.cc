#include "model/transformer_lm/packed_weights.h"

#include <optional>
#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/weights/name_map.h"

namespace tlm {
namespace {

using Views = std::span<const TensorView>;

// Packs the matrices of a model whose MatrixTypeOf in `format` is `type`.
struct Packer {
  Ops& ops;
  DType type;
  WeightFormat format;
  TensorPager* pager;  // of all tensors, or null

  // The result of `pack`, called while `parts` are in memory.
  template <typename Pack>
  auto WhileAcquired(Views parts, Pack pack) const -> decltype(pack()) {
    if (pager == nullptr) return pack();
    TLM_RETURN_IF_ERROR(pager->Acquire(parts));
    auto packed = pack();
    pager->Release(parts);
    return packed;
  }

  absl::StatusOr<std::unique_ptr<Matrix>> Pack(Views parts,
                                               MatrixOrder order = MatrixOrder::kOutputsFirst,
                                               MatrixUse use = MatrixUse::kPlain) const {
    return WhileAcquired(parts, [&] { return PackInType(parts, order, use); });
  }

  // Empty when the configuration has no such tensors.
  absl::StatusOr<Buffer> PackVectors(Views parts) const {
    if (parts.front().data == nullptr) return Buffer();
    return WhileAcquired(parts, [&] { return ops.PackVector(parts); });
  }

  absl::StatusOr<PackedNorm> PackNorm(const TensorView& gain, const TensorView& bias) const {
    PackedNorm norm;
    TLM_ASSIGN_OR_RETURN(norm.gain, PackVectors({&gain, 1}));
    TLM_ASSIGN_OR_RETURN(norm.bias, PackVectors({&bias, 1}));
    return norm;
  }

  // A model with matrices of several types runs in float32. Where float32 activations need float32
  // matrices, the others are widened by stacking them with an empty float32 part.
  absl::StatusOr<std::unique_ptr<Matrix>> PackInType(Views parts, MatrixOrder order,
                                                     MatrixUse use) const {
    if (format == WeightFormat::kInt8) return ops.PackMatrix(parts, order, use, format);
    const TensorView& first = parts.front();
    const bool fits = ops.ActivationType(first.dtype) == ops.ActivationType(type) ||
                      (ops.TakesFloatRows() && ops.ActivationType(type) == DType::kF32);
    if (fits) {
      return ops.PackMatrix(parts, order, use);
    }
    const bool outputs_first = order == MatrixOrder::kOutputsFirst;
    std::vector<TensorView> widened(parts.begin(), parts.end());
    widened.push_back({.dtype = DType::kF32,
                       .shape = outputs_first ? Shape{0, first.shape[1]} : Shape{first.shape[0], 0},
                       .data = nullptr});
    return ops.PackMatrix(widened, order, use);
  }
};

// Linear maps of the same input as one, with their biases end to end.
absl::StatusOr<PackedLinear> PackLinear(Views matrices, Views biases, MatrixOrder order,
                                        const Packer& packer, MatrixUse use = MatrixUse::kPlain) {
  PackedLinear linear;
  TLM_ASSIGN_OR_RETURN(linear.matrix, packer.Pack(matrices, order, use));
  TLM_ASSIGN_OR_RETURN(linear.bias, packer.PackVectors(biases));
  return linear;
}

absl::StatusOr<PackedLinear> PackQkv(const LayerWeights& weights, MatrixOrder order,
                                     const Packer& packer) {
  if (weights.qkv.data != nullptr) {
    return PackLinear({&weights.qkv, 1}, {&weights.qkv_bias, 1}, order, packer);
  }
  const TensorView matrices[] = {weights.q, weights.k, weights.v};
  const TensorView biases[] = {weights.q_bias, weights.k_bias, weights.v_bias};
  return PackLinear(matrices, biases, order, packer);
}

absl::StatusOr<PackedLinear> PackUp(const LayerWeights& weights, MatrixOrder order,
                                    const Packer& packer) {
  if (weights.gate.data == nullptr) {
    return PackLinear({&weights.up, 1}, {&weights.up_bias, 1}, order, packer);
  }
  const TensorView matrices[] = {weights.gate, weights.up};
  const TensorView biases[] = {weights.gate_bias, weights.up_bias};
  return PackLinear(matrices, biases, order, packer, MatrixUse::kGated);
}

absl::StatusOr<PackedLayer> PackLayer(const ModelConfig& config, const LayerWeights& weights,
                                      const Packer& packer) {
  const auto order_of = [&config](TensorRole role) {
    return IsInputsFirst(config.naming, role) ? MatrixOrder::kInputsFirst
                                              : MatrixOrder::kOutputsFirst;
  };
  PackedLayer layer;
  TLM_ASSIGN_OR_RETURN(layer.attention_norm,
                       packer.PackNorm(weights.attn_norm, weights.attn_norm_bias));
  const TensorRole qkv = weights.qkv.data != nullptr ? TensorRole::kQkv : TensorRole::kQ;
  TLM_ASSIGN_OR_RETURN(layer.qkv, PackQkv(weights, order_of(qkv), packer));
  TLM_ASSIGN_OR_RETURN(layer.q_norm, packer.PackVectors({&weights.q_norm, 1}));
  TLM_ASSIGN_OR_RETURN(layer.k_norm, packer.PackVectors({&weights.k_norm, 1}));
  TLM_ASSIGN_OR_RETURN(layer.attention, PackLinear({&weights.o, 1}, {&weights.o_bias, 1},
                                                   order_of(TensorRole::kO), packer));
  TLM_ASSIGN_OR_RETURN(layer.ffn_norm, packer.PackNorm(weights.ffn_norm, weights.ffn_norm_bias));
  TLM_ASSIGN_OR_RETURN(layer.up, PackUp(weights, order_of(TensorRole::kUp), packer));
  TLM_ASSIGN_OR_RETURN(layer.down, PackLinear({&weights.down, 1}, {&weights.down_bias, 1},
                                              order_of(TensorRole::kDown), packer));
  return layer;
}

}  // namespace

absl::StatusOr<PackedWeights> PackWeights(const ModelConfig& config, const ModelWeights& weights,
                                          WeightFormat format, Ops& ops) {
  if (!ops.TakesWeights(format)) {
    return Unimplemented("8-bit weights on backend {}", ops.device().info().backend);
  }
  const Packer packer{ops, MatrixTypeOf(weights, format), format, weights.pager};
  PackedWeights packed;
  // The largest first: an acquired tensor takes memory beside what is packed already.
  TLM_ASSIGN_OR_RETURN(packed.token_embedding, packer.Pack({&weights.token_embedding, 1}));
  if (!config.tie_word_embeddings) {
    TLM_ASSIGN_OR_RETURN(packed.lm_head, packer.Pack({&weights.lm_head, 1}));
  }
  if (config.learned_positions) {
    const Views positions = {&weights.position_embedding, 1};
    TLM_ASSIGN_OR_RETURN(packed.position_embedding, packer.WhileAcquired(positions, [&] {
      return ops.PackMatrix(positions, MatrixOrder::kOutputsFirst, MatrixUse::kPlain, format);
    }));
  }
  for (const LayerWeights& layer : weights.layers) {
    TLM_ASSIGN_OR_RETURN(PackedLayer packed_layer, PackLayer(config, layer, packer));
    packed.layers.push_back(std::move(packed_layer));
  }
  TLM_ASSIGN_OR_RETURN(packed.final_norm,
                       packer.PackNorm(weights.final_norm, weights.final_norm_bias));
  return packed;
}

DType MatrixTypeOf(const ModelWeights& weights) {
  std::optional<DType> common;
  bool differ = false;
  const auto add = [&](const TensorView& matrix) {
    if (matrix.data == nullptr) return;
    const bool widened = matrix.dtype == DType::kF64 || IsBlockQuantised(matrix.dtype);
    const DType dtype = widened ? DType::kF32 : matrix.dtype;
    differ |= common.value_or(dtype) != dtype;
    common = dtype;
  };
  add(weights.token_embedding);
  add(weights.lm_head);
  for (const LayerWeights& layer : weights.layers) {
    for (const TensorView* const matrix : {&layer.qkv, &layer.q, &layer.k, &layer.v, &layer.o,
                                           &layer.gate, &layer.up, &layer.down}) {
      add(*matrix);
    }
  }
  return differ ? DType::kF32 : common.value_or(DType::kF32);
}

DType MatrixTypeOf(const ModelWeights& weights, WeightFormat format) {
  return format == WeightFormat::kInt8 ? DType::kI8 : MatrixTypeOf(weights);
}

std::map<DType, uint64_t> BytesByType(const PackedWeights& weights) {
  std::map<DType, uint64_t> bytes;
  const auto add_matrix = [&bytes](const std::unique_ptr<Matrix>& matrix) {
    if (matrix != nullptr) bytes[matrix->dtype()] += matrix->bytes();
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
