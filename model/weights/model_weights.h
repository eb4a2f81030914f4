// The parameters of a model, and how a checkpoint's tensors are bound to them.
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

// name_map.h has shapes and storage orders. Tensors that the configuration lacks have no data.
// Either qkv or (q, k, v) has data, with its biases.
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

// Brings tensors into memory while they are in use. If a ModelWeights has a pager, its tensors may
// be read only while they are acquired. One thread at a time.
class TensorPager {
 public:
  virtual ~TensorPager() = default;

  // Brings tensors, which are views of the weights, into memory; skips tensors without data. A
  // pager that checks values returns INVALID_ARGUMENT with the name of the first tensor with a
  // non-finite value. Implementations may return other errors.
  virtual absl::Status Acquire(std::span<const TensorView> tensors) = 0;
  // Frees the tensors' memory: their values are undefined until they are acquired again.
  virtual void Release(std::span<const TensorView> tensors) = 0;
};

// Views of host memory. Each tensor is F64, F32, BF16, F16 or of a type in blocks; types may
// differ. Tensors that config.quantisation covers are bound to the stored integers;
// QuantisedWeights makes their elements readable.
struct ModelWeights {
  TensorView token_embedding;
  TensorView position_embedding;  // without data unless positions are learned
  std::vector<LayerWeights> layers;
  TensorView final_norm, final_norm_bias;
  TensorView lm_head;             // the same view as token_embedding if the two are tied
  std::vector<TensorSpec> specs;  // ExpectedTensors of the configuration
  TensorPager* pager = nullptr;   // pages all of these tensors; null: they are in memory
};

// Returns the place of the tensor of `spec`; weights->layers must have spec.layer.
TensorView* PlaceOf(const TensorSpec& spec, ModelWeights* weights);
inline const TensorView& TensorOf(const TensorSpec& spec, const ModelWeights& weights) {
  return *PlaceOf(spec, const_cast<ModelWeights*>(&weights));
}

// Finds every tensor of the configuration, which has passed Validate(), under its name or its other
// name (see name_map.h). Returns INVALID_ARGUMENT, naming the tensor, if one is missing, has
// another shape or an unsupported type, if FindQuantisedMatrix refuses a quantised one, or if the
// checkpoint has a surplus tensor. The checkpoint may have known buffers (see name_map.h), the LM
// head of a model that ties it if it equals the embedding bit for bit, and biases of quantised
// modules that are 0. Other values are not checked: see check_finite.h.
absl::StatusOr<ModelWeights> BindWeights(const ModelConfig& config, const Checkpoint& checkpoint);

// Parses "float32", "bfloat16" or "float16"; INVALID_ARGUMENT lists these for another name.
absl::StatusOr<DType> WeightsDTypeFromName(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_MODEL_WEIGHTS_H_
