// `quantization_config` of a config.json: how the checkpoint's matrices are quantised.
#ifndef TLM_MODEL_CONFIG_QUANTISATION_FIELDS_H_
#define TLM_MODEL_CONFIG_QUANTISATION_FIELDS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/json_fields.h"
#include "model/config/model_config.h"

namespace tlm {

// Of the model whose fields these are; none without the key. Which modules stay floats is not read:
// the tensors tell it. UNIMPLEMENTED, naming key, value and what is supported, for other methods
// than awq, gptq, fp8 and compressed-tensors, and for whatever of these is not supported;
// INVALID_ARGUMENT for values that are not allowed.
absl::StatusOr<std::vector<QuantisationScheme>> ReadQuantisation(const JsonFields& fields);

// UNIMPLEMENTED, naming key and value, if there is such a key.
absl::Status RefuseQuantisation(const JsonFields& fields);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_QUANTISATION_FIELDS_H_
