// The settings of the architecture, each by its own name; README.md lists them all.
#ifndef TLM_MODEL_CONFIG_TRANSFORMER_LM_FIELDS_H_
#define TLM_MODEL_CONFIG_TRANSFORMER_LM_FIELDS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "model/config/config_fields.h"
#include "model/config/model_config.h"

namespace tlm {

// Where the file says nothing; the rest has the same defaults in every family.
struct FieldDefaults {
  std::optional<int64_t> context_length;  // none: it must be there
  double norm_eps = 1e-5;
  bool qk_norm = false;
  std::optional<double> rope_theta;  // none: rotary positions only where the file asks for them
  RopeLayout rope_layout = RopeLayout::kInterleaved;
};

// Reads every setting; naming is left alone where the file says none. INVALID_ARGUMENT for a field
// that is missing or wrong and for two that contradict each other, UNIMPLEMENTED for what this
// program cannot compute; both name the keys.
absl::Status ReadFields(ConfigFields& fields, const FieldDefaults& defaults, ModelConfig* config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_TRANSFORMER_LM_FIELDS_H_
