// The sampling defaults a model directory recommends.
#ifndef TLM_MODEL_CONFIG_GENERATION_CONFIG_H_
#define TLM_MODEL_CONFIG_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tlm {

// What generation_config.json says, checked: the ranges are those of sampling parameters. Unset =
// it does not say.
struct GenerationDefaults {
  std::optional<float> temperature;  // >= 0; 0 where it says do_sample is false
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
