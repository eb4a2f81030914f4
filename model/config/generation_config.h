// The sampling defaults of a model.
#ifndef TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
#define TLM_MODEL_CONFIG_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/base/gguf_header.h"

namespace tlm {

// In the ranges of sampling parameters. Unset = absent.
struct GenerationDefaults {
  std::optional<float> temperature;  // >= 0; 0 if do_sample is false
  std::optional<uint32_t> top_k;
  std::optional<float> top_p;               // (0, 1]
  std::optional<float> min_p;               // [0, 1]
  std::optional<float> typical_p;           // (0, 1]
  std::optional<float> repetition_penalty;  // > 0
};

// All unset when the directory has no generation_config.json. INVALID_ARGUMENT names the file, the
// key, the value and the range. End-of-sequence ids are read by ReadModelConfig.
absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir);

// Of a GGUF file: the keys "general.sampling.*" temp, top_k (below 0: all tokens), top_p, min_p,
// and penalty_repeat where penalty_last_n is -1, the whole text, as it is here. The others (xtc,
// mirostat, sequence) are ignored. INVALID_ARGUMENT names the key, the value and the range.
absl::StatusOr<GenerationDefaults> ReadGgufGenerationDefaults(const GgufMetadata& metadata);

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
