// Published configurations by name, without weights: for accounting and benchmarks.
#ifndef TLM_MODEL_CONFIG_PRESETS_H_
#define TLM_MODEL_CONFIG_PRESETS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm {

// The names in display order: families together, by size.
const std::vector<std::string>& PresetNames();

// Returns the text of the preset's config.json, for ParseModelConfig: architecture, special tokens
// and `torch_dtype` of the published file. "cs336-tinystories" is the size that the CS336 course
// trains on TinyStories, "cs336-small" to "cs336-2.7b" are the sizes that it profiles, all with its
// vocabulary of 10,000 and its longest context, 1,024 tokens. INVALID_ARGUMENT for an unknown name
// lists the presets, in one line.
absl::StatusOr<std::string> PresetConfig(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_PRESETS_H_
