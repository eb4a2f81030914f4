// Reads `quantization_config` of a config.json: the quantisation of the checkpoint's matrices.
#ifndef TLM_MODEL_CONFIG_QUANTISATION_FIELDS_H_
#define TLM_MODEL_CONFIG_QUANTISATION_FIELDS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/json_fields.h"
#include "model/config/model_config.h"

namespace tlm {

// Reads the schemes of a model's fields; empty without the key. Does not read which modules stay
// floats: the tensors show it. UNIMPLEMENTED, naming key, value and the supported ones, for other
// methods than awq, gptq, fp8 and compressed-tensors, and for unsupported variants of these;
// INVALID_ARGUMENT for values that are not allowed.
absl::StatusOr<std::vector<QuantisationScheme>> ReadQuantisation(const JsonFields& fields);

// UNIMPLEMENTED, naming key and value, if there is such a key.
absl::Status RefuseQuantisation(const JsonFields& fields);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_QUANTISATION_FIELDS_H_
