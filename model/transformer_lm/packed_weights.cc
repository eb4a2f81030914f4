#include "model/transformer_lm/packed_weights.h"

#include <span>
#include <utility>

#include "model/base/errors.h"
#include "model/weights/name_map.h"

namespace tlm {
namespace {

using Views = std::span<const TensorView>;

// Empty when the configuration has no such tensors.
absl::StatusOr<Buffer> PackVectors(Views parts, Ops& ops) {
  if (parts.front().data == nullptr) return Buffer();
  return ops.PackVector(parts);
}

absl::StatusOr<PackedNorm> PackNorm(const TensorView& gain, const TensorView& bias, Ops& ops) {
  PackedNorm norm;
  TLM_ASSIGN_OR_RETURN(norm.gain, PackVectors({&gain, 1}, ops));
  TLM_ASSIGN_OR_RETURN(norm.bias, PackVectors({&bias, 1}, ops));
  return norm;
}

// Linear maps of the same input as one, with their biases end to end.
absl::StatusOr<PackedLinear> PackLinear(Views matrices, Views biases, MatrixOrder order, Ops& ops) {
  PackedLinear linear;
  TLM_ASSIGN_OR_RETURN(linear.matrix, ops.PackMatrix(matrices, order));
  TLM_ASSIGN_OR_RETURN(linear.bias, PackVectors(biases, ops));
  return linear;
}

absl::StatusOr<PackedLinear> PackQkv(const LayerWeights& weights, MatrixOrder order, Ops& ops) {
  if (weights.qkv.data != nullptr) {
    return PackLinear({&weights.qkv, 1}, {&weights.qkv_bias, 1}, order, ops);
  }
  const TensorView matrices[] = {weights.q, weights.k, weights.v};
  const TensorView biases[] = {weights.q_bias, weights.k_bias, weights.v_bias};
  return PackLinear(matrices, biases, order, ops);
}

absl::StatusOr<PackedLinear> PackUp(const LayerWeights& weights, MatrixOrder order, Ops& ops) {
  if (weights.gate.data == nullptr) {
    return PackLinear({&weights.up, 1}, {&weights.up_bias, 1}, order, ops);
  }
  const TensorView matrices[] = {weights.gate, weights.up};
  const TensorView biases[] = {weights.gate_bias, weights.up_bias};
  return PackLinear(matrices, biases, order, ops);
}

absl::StatusOr<PackedLayer> PackLayer(const ModelConfig& config, const LayerWeights& weights,
                                      Ops& ops) {
  const auto order_of = [&config](TensorRole role) {
    return IsInputsFirst(config.naming, role) ? MatrixOrder::kInputsFirst
                                              : MatrixOrder::kOutputsFirst;
  };
  PackedLayer layer;
  TLM_ASSIGN_OR_RETURN(layer.attention_norm,
                       PackNorm(weights.attn_norm, weights.attn_norm_bias, ops));
  const TensorRole qkv = weights.qkv.data != nullptr ? TensorRole::kQkv : TensorRole::kQ;
  TLM_ASSIGN_OR_RETURN(layer.qkv, PackQkv(weights, order_of(qkv), ops));
  TLM_ASSIGN_OR_RETURN(layer.q_norm, PackVectors({&weights.q_norm, 1}, ops));
  TLM_ASSIGN_OR_RETURN(layer.k_norm, PackVectors({&weights.k_norm, 1}, ops));
  TLM_ASSIGN_OR_RETURN(layer.attention, PackLinear({&weights.o, 1}, {&weights.o_bias, 1},
                                                   order_of(TensorRole::kO), ops));
  TLM_ASSIGN_OR_RETURN(layer.ffn_norm, PackNorm(weights.ffn_norm, weights.ffn_norm_bias, ops));
  TLM_ASSIGN_OR_RETURN(layer.up, PackUp(weights, order_of(TensorRole::kUp), ops));
  TLM_ASSIGN_OR_RETURN(layer.down, PackLinear({&weights.down, 1}, {&weights.down_bias, 1},
                                              order_of(TensorRole::kDown), ops));
  return layer;
}

}  // namespace

absl::StatusOr<PackedWeights> PackWeights(const ModelConfig& config, const ModelWeights& weights,
                                          Ops& ops) {
  PackedWeights packed;
  TLM_ASSIGN_OR_RETURN(packed.token_embedding, ops.PackMatrix({&weights.token_embedding, 1}));
  if (config.learned_positions) {
    TLM_ASSIGN_OR_RETURN(packed.position_embedding,
                         ops.PackMatrix({&weights.position_embedding, 1}));
  }
  for (const LayerWeights& layer : weights.layers) {
    TLM_ASSIGN_OR_RETURN(PackedLayer packed_layer, PackLayer(config, layer, ops));
    packed.layers.push_back(std::move(packed_layer));
  }
  TLM_ASSIGN_OR_RETURN(packed.final_norm,
                       PackNorm(weights.final_norm, weights.final_norm_bias, ops));
  if (!config.tie_word_embeddings) {
    TLM_ASSIGN_OR_RETURN(packed.lm_head, ops.PackMatrix({&weights.lm_head, 1}));
  }
  return packed;
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
