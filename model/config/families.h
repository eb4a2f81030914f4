// The model families, one row each. A new family is a new row, beside its reader in the file of a
// similar family, and, if its tensors are named differently, a column in model/weights/name_map.cc.
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
  const char* model_type;    // its name in config.json
  const char* architecture;  // if the file names none
  TensorNaming naming;       // unless the reader sets another
  // If the file has none. An id outside the vocabulary counts as none.
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  // Fills everything except model_type, architecture and the token ids. INVALID_ARGUMENT for a
  // missing or invalid field, UNIMPLEMENTED for one with an unsupported value; both name it.
  // Validate() makes checks across fields.
  absl::Status (*read)(const JsonFields& fields, ModelConfig* config);
};

// All of them, by groups.
std::span<const std::span<const Family>> FamilyGroups();

std::span<const Family> CourseFamilies();  // cs336, qwen3_mha, transformer_lm
std::span<const Family> LlamaFamilies();   // llama, mistral, qwen2, qwen3
std::span<const Family> Gpt2Families();    // gpt2

// Null when there is none of this name.
const Family* FindFamily(std::string_view model_type);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_FAMILIES_H_
