// The models of course notebooks, and the generic one in which every setting has a name.
#include "model/config/families.h"
#include "model/config/knobs.h"
#include "model/config/rope_fields.h"
#include "model/config/transformer_lm_knobs.h"

namespace tlm {
namespace {

// Keys of configurations that change nothing here.
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

// The course's files hold whatever else the notebook needs: keys nobody knows are passed over.
absl::Status ReadCs336(const JsonFields& fields, ModelConfig* config) {
  Knobs knobs(fields);
  return ReadKnobs(knobs, {}, config);
}

absl::Status ReadQwen3Mha(const JsonFields& fields, ModelConfig* config) {
  Knobs knobs(fields);
  const KnobDefaults defaults = {.context_length = 8192,
                                 .norm_eps = 1e-6,
                                 .qk_norm = true,
                                 .rope_theta = 10000.0,
                                 .rope_layout = RopeLayout::kHalf};
  return ReadKnobs(knobs, defaults, config);
}

// A misspelt setting would silently keep its default and give other numbers.
absl::Status ReadTransformerLm(const JsonFields& fields, ModelConfig* config) {
  Knobs knobs(fields);
  TLM_RETURN_IF_ERROR(ReadKnobs(knobs, {}, config));
  knobs.Allow(kHarmless);
  TLM_RETURN_IF_ERROR(knobs.RefuseUnknown());
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    TLM_ASSIGN_OR_RETURN(const std::optional<JsonFields> rope, fields.Object(key));
    if (!rope.has_value()) continue;
    Knobs inner(*rope);
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
