#include "tests/benchmarks/engine/model_flags.h"

#include <string>

#include "absl/flags/flag.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/backend_flags.h"

ABSL_FLAG(std::string, model, "", "model directory or GGUF file");
ABSL_FLAG(std::string, preset, "", "known shape with random weights, in place of --model");
ABSL_FLAG(std::string, weights_dtype, "", "of random weights: float32, bfloat16, float16");
ABSL_FLAG(std::string, kv_cache_dtype, "", "of keys and values; empty: the backend's choice");

namespace tlm::bench {

absl::StatusOr<ModelChoice> ModelFromFlags() {
  ModelChoice choice;
  choice.model = absl::GetFlag(FLAGS_model);
  choice.preset = absl::GetFlag(FLAGS_preset);
  TLM_ASSIGN_OR_RETURN(choice.weights_dtype,
                       TypeFlag(absl::GetFlag(FLAGS_weights_dtype), "weights_dtype"));
  TLM_ASSIGN_OR_RETURN(choice.kv_dtype, KvTypeFlag(absl::GetFlag(FLAGS_kv_cache_dtype)));
  TLM_ASSIGN_OR_RETURN(choice.format, WeightFormatFromFlags());
  return choice;
}

}  // namespace tlm::bench
