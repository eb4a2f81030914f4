// The parameters of a model, each tensor of a checkpoint in its place.
#ifndef TLM_MODEL_WEIGHTS_MODEL_WEIGHTS_H_
#define TLM_MODEL_WEIGHTS_MODEL_WEIGHTS_H_

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"
#include "model/weights/checkpoint.h"
#include "model/weights/name_map.h"

namespace tlm {

// Shapes and storage orders as in name_map.h. Tensors that the configuration lacks are without
// data; exactly one of qkv and (q, k, v) has data, with its biases.
struct LayerWeights {
  TensorView attn_norm, attn_norm_bias;
  TensorView qkv, qkv_bias;
  TensorView q, k, v, o;
  TensorView q_bias, k_bias, v_bias, o_bias;
  TensorView q_norm, k_norm;
  TensorView ffn_norm, ffn_norm_bias;
  TensorView gate, up, down;
  TensorView gate_bias, up_bias, down_bias;
};

// Brings tensors into memory while they are in use. The tensors of a ModelWeights that has a pager
// may be read only while they are acquired. One thread at a time.
class TensorPager {
 public:
  virtual ~TensorPager() = default;

  // Brings tensors, which are views of the weights, into memory; those without data are skipped. A
  // pager that checks values returns INVALID_ARGUMENT with the name of the first tensor with a
  // non-finite value. Other statuses are the implementation's.
  virtual absl::Status Acquire(std::span<const TensorView> tensors) = 0;
  // Frees their memory: their values are undefined until they are acquired again.
  virtual void Release(std::span<const TensorView> tensors) = 0;
};

// Views of host memory; each tensor F64, F32, BF16, F16 or of a type in blocks, not necessarily all
// alike. What config.quantisation is about is read as QuantisedWeights has it; as bound, its data
// are the stored integers.
struct ModelWeights {
  TensorView token_embedding;
  TensorView position_embedding;  // without data unless positions are learned
  std::vector<LayerWeights> layers;
  TensorView final_norm, final_norm_bias;
  TensorView lm_head;            // the very same view as token_embedding where the two are tied
  TensorPager* pager = nullptr;  // of all of them; null: they are in memory
};

// The place of the tensor of `spec`; weights->layers must have spec.layer.
TensorView* PlaceOf(const TensorSpec& spec, ModelWeights* weights);

// Finds every tensor the configuration, which has passed Validate(), asks for, under its name or
// its other name (see name_map.h). INVALID_ARGUMENT, naming the tensor, when one is missing, of
// another shape or not of those types, for a quantised one as FindQuantisedMatrix, and when the
// checkpoint has a surplus one. Known buffers (see name_map.h) are allowed, and so are the LM head
// of a model that ties it, if it equals the embedding bit for bit, and biases of quantised modules
// that are 0. Other values are not checked: see check_finite.h.
absl::StatusOr<ModelWeights> BindWeights(const ModelConfig& config, const Checkpoint& checkpoint);

// "float32", "bfloat16" or "float16"; INVALID_ARGUMENT lists these for another name.
absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_MODEL_WEIGHTS_H_
