#include "model/config/shared_fields.h"

#include <algorithm>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"

namespace tlm {

absl::Status RequireFlag(const JsonFields& fields, const std::string& key, bool supported) {
  TLM_ASSIGN_OR_RETURN(const std::optional<bool> flag, fields.Bool(key));
  if (flag.value_or(supported) == supported) return absl::OkStatus();
  return Unimplemented("{} is {}, only {} is supported", key, *flag, supported);
}

absl::StatusOr<int64_t> PerHead(const std::string& width_name, int64_t width,
                                const std::string& heads_name, int64_t heads) {
  if (width % heads == 0) return width / heads;
  return InvalidArgument("{} is {}, it must be a multiple of {}, which is {}", width_name, width,
                         heads_name, heads);
}

absl::StatusOr<std::optional<std::vector<bool>>> ReadLayerTypes(const JsonFields& fields,
                                                                int64_t num_layers) {
  TLM_ASSIGN_OR_RETURN(const std::vector<std::string> types,
                       fields.Strings("layer_types", ConfigLimits::kNumLayers));
  if (!fields.Has("layer_types")) return std::optional<std::vector<bool>>();
  if (static_cast<int64_t>(types.size()) != num_layers) {
    return InvalidArgument("layer_types has {} elements, it must have one for each of {} layers",
                           types.size(), num_layers);
  }
  std::vector<bool> full;
  for (const std::string& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return Unimplemented(
          "layer_types names {}, supported are 'full_attention' and 'sliding_attention'",
          Quoted(type));
    }
    full.push_back(type == "full_attention");
  }
  return std::optional(std::move(full));
}

absl::Status SetSlidingWindow(std::optional<int64_t> window, std::vector<bool> full_attention,
                              ModelConfig* config) {
  if (window.has_value() && *window < 1) {
    return InvalidArgument("sliding_window is {}, it must be above 0", *window);
  }
  const auto layers = static_cast<int64_t>(full_attention.size());
  const int64_t full = std::count(full_attention.begin(), full_attention.end(), true);
  const bool none_has_it = layers > 0 && full == layers;
  if (!window.has_value() || *window >= config->context_length || none_has_it) {
    return absl::OkStatus();
  }
  config->sliding_window = window;
  if (full > 0) config->full_attention = std::move(full_attention);
  return absl::OkStatus();
}

}  // namespace tlm
