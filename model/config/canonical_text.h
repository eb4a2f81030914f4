// A text that identifies the computation of a configuration, for fingerprints.
#ifndef TLM_MODEL_CONFIG_CANONICAL_TEXT_H_
#define TLM_MODEL_CONFIG_CANONICAL_TEXT_H_

#include <string>

#include "model/config/model_config.h"

namespace tlm {

// Two configurations have the same text if and only if, given the same tensors, they compute the
// same numbers and end at the same tokens; display names are left out. Lines "field value", the
// same on every machine. The format may change from release to release.
std::string CanonicalText(const ModelConfig& config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_CANONICAL_TEXT_H_
