// Known models by name, without their weights: for accounting, and for benchmarks of real shapes.
#ifndef TLM_MODEL_CONFIG_PRESETS_H_
#define TLM_MODEL_CONFIG_PRESETS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tlm {

// The names for display: families together, by size.
const std::vector<std::string>& PresetNames();

// The text of the preset's config.json, for ParseModelConfig: nothing else knows of presets. It
// repeats what the published file says about the architecture, the special tokens and
// `torch_dtype`. "cs336-tinystories" is the size the CS336 course trains on TinyStories,
// "cs336-small" to "cs336-2.7b" those it profiles, all with its vocabulary of 10,000 and its
// longest context, 1,024 tokens. INVALID_ARGUMENT for an unknown name lists those there are, in one
// line.
absl::StatusOr<std::string> PresetConfig(std::string_view name);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_PRESETS_H_
