// The model families, one row each. A new family is a new row with a reader, next to a similar
// family, and, if its tensors are named differently, a column in model/weights/name_map.cc.
#ifndef TLM_MODEL_CONFIG_FAMILIES_H_
#define TLM_MODEL_CONFIG_FAMILIES_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// UNIMPLEMENTED, naming the key, unless the flag equals `supported` or is absent.
absl::Status RequireFlag(const JsonFields& fields, const std::string& key, bool supported);

// Returns the default of the values per head: `width` divided among the heads. INVALID_ARGUMENT
// when it is not divisible; the names are for its message.
absl::StatusOr<int64_t> PerHead(const std::string& width_name, int64_t width,
                                const std::string& heads_name, int64_t heads);

// Reads `layer_types`: for each layer whether it has full attention; nullopt when absent.
// UNIMPLEMENTED for a type that is neither "full_attention" nor "sliding_attention",
// INVALID_ARGUMENT unless there is one per layer.
absl::StatusOr<std::optional<std::vector<bool>>> ReadLayerTypes(const JsonFields& fields,
                                                                int64_t num_layers);

// Sets the window of the layers that are not in `full_attention`, which is by layer or empty. No
// window is set if it would cover the whole context, or no layer. INVALID_ARGUMENT, with the key
// "sliding_window", unless it is above 0.
absl::Status SetSlidingWindow(std::optional<int64_t> window, std::vector<bool> full_attention,
                              ModelConfig* config);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_FAMILIES_H_
