// Measures the importance of the inputs of a model's matrices on a text.
#ifndef TLM_MODEL_TRANSFORMER_LM_CALIBRATION_H_
#define TLM_MODEL_TRANSFORMER_LM_CALIBRATION_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/ops/ops.h"
#include "model/transformer_lm/packed_weights.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Fewer tokens than this give no useful measurement.
inline constexpr int64_t kMinCalibrationTokens = 256;

// Packs `weights` as they are given, runs windows of at most 512 of `tokens` one after the other,
// and frees the packed weights. `ops` compute in the host's memory and have no model reserved.
// Returns INVALID_ARGUMENT for fewer than kMinCalibrationTokens tokens, for a token outside the
// vocabulary, and for activations that are not finite; other errors are the errors of
// TransformerLM::Load.
absl::StatusOr<InputImportance> MeasureImportance(const ModelConfig& config,
                                                  const ModelWeights& weights, Ops& ops,
                                                  std::span<const int32_t> tokens);

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_CALIBRATION_H_
