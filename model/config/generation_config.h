// The sampling defaults of a model.
#ifndef TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
#define TLM_MODEL_CONFIG_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"

namespace tlm {

// The defaults that are set, each in the range of its sampling parameter.
struct GenerationDefaults {
  std::optional<float> temperature;  // >= 0; 0 if do_sample is false
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;               // (0, 1]
  std::optional<float> min_p;               // [0, 1]
  std::optional<float> typical_p;           // (0, 1]
  std::optional<float> repetition_penalty;  // > 0
};

// Returns all defaults unset when the directory has no generation_config.json. INVALID_ARGUMENT
// names the file, the key, the value and the range. ReadModelConfig reads the end-of-sequence ids.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir);

// Reads the keys "general.sampling.*" of a GGUF file: temp, top_k (below 0: all tokens), top_p,
// min_p, and penalty_repeat if penalty_last_n is -1, the whole text, which repetition_penalty
// always covers. The others (xtc, mirostat, sequence) are ignored. INVALID_ARGUMENT names the key,
// the value and the range.
absl::StatusOr<GenerationDefaults> ReadGgufGenerationDefaults(const GgufMetadata& metadata);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
