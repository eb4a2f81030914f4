// Reads the config fields of `transformer_lm`; README.md lists them all.
#ifndef TLM_MODEL_CONFIG_TRANSFORMER_LM_FIELDS_H_
#define TLM_MODEL_CONFIG_TRANSFORMER_LM_FIELDS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "model/config/config_fields.h"
#include "model/config/model_config.h"

namespace tlm {

// Defaults that differ between families.
struct FieldDefaults {
  std::optional<int64_t> context_length;  // nullopt: the field is required
  double norm_eps = 1e-5;
  bool qk_norm = false;
  std::optional<double> rope_theta;  // nullopt: rotary positions only if the file has them
  RopeLayout rope_layout = RopeLayout::kInterleaved;
};

// Reads every field; keeps the naming if the file has none. INVALID_ARGUMENT for a missing or
// invalid field and for contradictory ones, UNIMPLEMENTED for unsupported values; both name the
// keys.
absl::Status ReadFields(ConfigFields& fields, const FieldDefaults& defaults, ModelConfig* config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_TRANSFORMER_LM_FIELDS_H_
