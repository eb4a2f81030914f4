// The parameters of a model in device memory, in the layout of the operations.
#ifndef TLM_MODEL_TRANSFORMER_LM_PACKED_WEIGHTS_H_
#define TLM_MODEL_TRANSFORMER_LM_PACKED_WEIGHTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/ops/ops.h"
#include "model/tensor/buffer.h"
#include "model/weights/model_weights.h"

namespace tlm {

struct PackedNorm {
  Buffer gain;  // [d_model]
  Buffer bias;  // [d_model]; empty with NormKind::kRms
};

struct PackedLinear {
  std::unique_ptr<Matrix> matrix;
  Buffer bias;  // [matrix->n()]; empty without a bias
};

struct PackedLayer {
  PackedNorm attention_norm;
  PackedLinear qkv;        // [q_size + 2 kv_size, d_model]
  Buffer q_norm;           // [head_dim], with qk_norm
  Buffer k_norm;           // [head_dim], with qk_norm
  PackedLinear attention;  // [d_model, q_size], the output projection
  PackedNorm ffn_norm;
  PackedLinear up;    // [2 d_ff, d_model], the gate first; [d_ff, d_model] without a gate
  PackedLinear down;  // [d_model, d_ff]
};

// The parameters belong to the device of the Ops that packed them.
struct PackedWeights {
  std::unique_ptr<Matrix> token_embedding;     // [vocab_size, d_model]; the head too when tied
  std::unique_ptr<Matrix> position_embedding;  // [context_length, d_model]; null unless learned
  std::vector<PackedLayer> layers;
  PackedNorm final_norm;
  std::unique_ptr<Matrix> lm_head;  // [vocab_size, d_model]; null when tied
};

// How much errors at the inputs of a matrix matter: the mean squares of the values it is multiplied
// by. Each vector has one element per input of the matrix.
struct InputImportance {
  struct Layer {
    std::vector<float> qkv, attention, up, down;
  };
  std::vector<float> head;
  std::vector<Layer> layers;
};

// How a model's matrices are stored, and the bytes that this takes.
struct PackingPlan {
  uint64_t host = 0;    // peak, in addition to the weights themselves
  uint64_t device = 0;  // an upper bound for matrices in blocks; without padding for others
  WeightFormat format = WeightFormat::kAsGiven;
  // The common type of all matrices as they are stored, where F64 counts as F32: kI8 if any is in
  // blocks, else kF32 if they differ. It determines the type of the activations: see
  // Ops::ActivationType.
  DType matrix_type = DType::kF32;
};

// Plans from types and shapes alone; no element of `weights` is read.
PackingPlan PlanPacking(const ModelConfig& config, const ModelWeights& weights, WeightFormat format,
                        const Ops& ops);

// `config` has passed Validate(), `weights` match it, and `plan` is PlanPacking of them. Matrices
// in blocks keep their type if `ops` TakesBlocks and the format is not kFloat32. Otherwise they are
// dequantised, one matrix at a time: to float32 with kFloat32, else to their DequantisedType.
// Matrices of floats are stored in the format, learned positions as they are given. Formats of 4
// bits take `importance`; null: all inputs matter alike. Returns RESOURCE_EXHAUSTED if the device
// or the host has too little memory, UNIMPLEMENTED for a format that `ops` does not support,
// INVALID_ARGUMENT like CheckFinite if `ops` ChecksFinite().
absl::StatusOr<PackedWeights> PackWeights(const ModelConfig& config, const ModelWeights& weights,
                                          const PackingPlan& plan, Ops& ops,
                                          const InputImportance* importance = nullptr);

// Returns bytes on the device by stored element type, without entries of 0 bytes: matrices as
// Matrix::BytesByType, vectors as float32.
std::map<DType, uint64_t> BytesByType(const PackedWeights& weights);

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_PACKED_WEIGHTS_H_
