// The models of course notebooks, and the generic one in which every setting has a name.
#include "model/config/config_fields.h"
#include "model/config/families.h"
#include "model/config/rope_fields.h"
#include "model/config/transformer_lm_fields.h"

namespace tlm {
namespace {

// Keys that have no effect here.
constexpr const char* kHarmless[] = {"architectures",
                                     "attention_dropout",
                                     "attn_pdrop",
                                     "bos_token_id",
                                     "dropout",
                                     "dtype",
                                     "embd_pdrop",
                                     "eos_token_id",
                                     "initializer_range",
                                     "model_type",
                                     "name",
                                     "pad_token_id",
                                     "resid_pdrop",
                                     "residual_dropout",
                                     "torch_dtype",
                                     "embedding_dropout",
                                     "transformers_version",
                                     "use_cache"};

// The course's files also hold settings of the notebook: unknown keys are ignored.
absl::Status ReadCs336(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  return ReadFields(fields, {}, config);
}

absl::Status ReadQwen3Mha(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  const FieldDefaults defaults = {.context_length = 8192,
                                  .norm_eps = 1e-6,
                                  .qk_norm = true,
                                  .rope_theta = 10000.0,
                                  .rope_layout = RopeLayout::kHalf};
  return ReadFields(fields, defaults, config);
}

// A misspelt setting would silently keep its default and change the results.
absl::Status ReadTransformerLm(const JsonFields& json, ModelConfig* config) {
  ConfigFields fields(json);
  TLM_RETURN_IF_ERROR(ReadFields(fields, {}, config));
  fields.Allow(kHarmless);
  TLM_RETURN_IF_ERROR(fields.RefuseUnknown());
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> rope, json.Object(key));
    if (!rope.has_value()) continue;
    ConfigFields inner(*rope);
    inner.Allow(RopeObjectKeys());
    TLM_RETURN_IF_ERROR(inner.RefuseUnknown());
  }
  return absl::OkStatus();
}

constexpr Family kCourseFamilies[] = {
    {"cs336", "TransformerLM", TensorNaming::kCs336, {}, {}, &ReadCs336},
    {"qwen3_mha", "Qwen3", TensorNaming::kQwen3Mha, {}, {}, &ReadQwen3Mha},
    {"transformer_lm", "TransformerLM", TensorNaming::kCs336, {}, {}, &ReadTransformerLm},
};

}  // namespace

std::span<const Family> CourseFamilies() { return kCourseFamilies; }

}  // namespace tlm
