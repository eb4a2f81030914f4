// The model families: one row each, from which the rest of the reader follows. A new family is a
// new row in families.cc and, if its tensors are named differently, in model/weights/name_map.cc.
#ifndef TLM_MODEL_CONFIG_FAMILIES_H_
#define TLM_MODEL_CONFIG_FAMILIES_H_

#include <span>

#include "absl/status/status.h"
#include "model/config/json_fields.h"
#include "model/config/model_config.h"

namespace tlm {

struct Family {
  const char* model_type;    // as config.json names it
  const char* architecture;  // where the file names none
  TensorNaming naming;
  // Fills in everything but model_type, architecture and naming. INVALID_ARGUMENT for a field that
  // is missing or wrong, UNIMPLEMENTED for one that asks for what this program cannot compute; both
  // name it. Leaves checks across fields to Validate().
  absl::Status (*read)(const JsonFields& fields, ModelConfig* config);
};

std::span<const Family> Families();

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_FAMILIES_H_
