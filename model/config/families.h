// The model families, one row each. A new family is a new row with a reader, next to a similar
// family, and, if its tensors are named differently, a column in model/weights/name_map.cc.
#ifndef TLM_MODEL_CONFIG_FAMILIES_H_
#define TLM_MODEL_CONFIG_FAMILIES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "model/base/json_fields.h"
#include "model/config/model_config.h"

namespace tlm {

struct Family {
  const char* model_type;    // the family's name in config.json
  const char* architecture;  // used if the file names none
  TensorNaming naming;       // used unless the reader sets another
  // Defaults if the file has no ids. An id outside the vocabulary is ignored.
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  // Fills everything except model_type, architecture and the token ids. INVALID_ARGUMENT for a
  // missing or invalid field, UNIMPLEMENTED for a field with an unsupported value; both name it.
  // Validate() checks relations between fields.
  absl::Status (*read)(const JsonFields& fields, ModelConfig* config);
};

std::span<const Family> Families();

// Returns null when there is no family of this name.
const Family* FindFamily(std::string_view model_type);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_FAMILIES_H_
