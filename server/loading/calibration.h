// --calibration: measures on a text how important the inputs of all matrices are, before the
// weights are quantised.
#ifndef TLM_SERVER_LOADING_CALIBRATION_H_
#define TLM_SERVER_LOADING_CALIBRATION_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/ops.h"
#include "model/tokenizer/tokenizer.h"
#include "model/transformer_lm/packed_weights.h"
#include "server/config/options.h"
#include "server/loading/model_source.h"

namespace tlm {

// A longer text would take many minutes and hardly improve the result.
inline constexpr size_t kMaxCalibrationBytes = size_t{1} << 20;

struct Calibration {
  std::optional<InputImportance> importance;  // nullopt: no --calibration
  std::string text_sha256;                    // the file's hash; empty: no --calibration
};

// Runs the text through the unquantised model and frees that model again; takes about as long as a
// prompt of that text. `tokenizer` is the model's, or null. `ops` must not have a model yet. Errors
// name the flag: NOT_FOUND for a file that cannot be found, FAILED_PRECONDITION for a file that
// cannot be read and for a model without a tokenizer or with quantised matrices; INVALID_ARGUMENT
// for a text that is not UTF-8, has more than kMaxCalibrationBytes or too few tokens; UNIMPLEMENTED
// for a GPU; RESOURCE_EXHAUSTED for too little memory for the unquantised model.
absl::StatusOr<Calibration> Calibrate(const ServerOptions& options, const OpenedModel& model,
                                      const Tokenizer* tokenizer, Ops& ops);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_CALIBRATION_H_
