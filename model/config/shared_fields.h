// Fields that the readers of several families share.
#ifndef TLM_MODEL_CONFIG_SHARED_FIELDS_H_
#define TLM_MODEL_CONFIG_SHARED_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/base/json_fields.h"
#include "model/config/model_config.h"

namespace tlm {

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

#endif  // TLM_MODEL_CONFIG_SHARED_FIELDS_H_
