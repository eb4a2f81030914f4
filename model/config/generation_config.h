// The sampling defaults of a model directory.
#ifndef TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
#define TLM_MODEL_CONFIG_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tlm {

// The values of generation_config.json, in the ranges of sampling parameters. Unset = absent.
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

}  // namespace tlm

#endif  // TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
