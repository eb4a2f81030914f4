// The settings of the feed-forward network.
#ifndef TLM_MODEL_CONFIG_FFN_FIELDS_H_
#define TLM_MODEL_CONFIG_FFN_FIELDS_H_

#include "absl/status/status.h"
#include "model/config/config_fields.h"
#include "model/config/model_config.h"

namespace tlm {

// Its kind, and which of the matrices w1, w2 and w3 is which; config->naming must be set.
// INVALID_ARGUMENT names the keys, as everywhere.
absl::Status ReadFfn(ConfigFields& fields, ModelConfig* config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_FFN_FIELDS_H_
