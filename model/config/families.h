// The model families: one row each, from which the rest of the reader follows. A new family is a
// new row, beside its reader in the file of the family it resembles, and, if its tensors are named
// differently, a column in model/weights/name_map.cc.
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
  const char* model_type;    // as config.json names it
  const char* architecture;  // where the file names none
  TensorNaming naming;       // where the reader says no other
  // Where the file leaves them out. One outside the vocabulary counts as none.
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> eos_token_id;
  // Fills in everything but model_type, architecture and the token ids. INVALID_ARGUMENT for a
  // field that is missing or wrong, UNIMPLEMENTED for one that asks for what this program cannot
  // compute; both name it. Leaves checks across fields to Validate().
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
