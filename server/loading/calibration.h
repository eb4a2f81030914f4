// --calibration: the importance of the inputs of all matrices, measured on a text before the
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

namespace tlm {

// A longer text would take many minutes, and say little more.
inline constexpr size_t kMaxCalibrationBytes = size_t{1} << 20;

struct Calibration {
  std::optional<InputImportance> importance;  // none: no --calibration
  std::string text_sha256;                    // of the file; empty likewise
};

// Runs the text through the model, unquantised, and frees it again: takes about as long as a prompt
// of that text. `tokenizer` is the model's, or null. `ops` have no model yet. Errors name the flag:
// NOT_FOUND and FAILED_PRECONDITION for a file that cannot be read and a model without a tokenizer
// or with matrices that are quantised already; INVALID_ARGUMENT for a text that is not UTF-8, has
// more than kMaxCalibrationBytes or too few tokens; UNIMPLEMENTED for a GPU; RESOURCE_EXHAUSTED for
// too little memory for the unquantised model.
absl::StatusOr<Calibration> Calibrate(const ServerOptions& options, const Tokenizer* tokenizer,
                                      Ops& ops);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_CALIBRATION_H_
