// The fingerprint: a hash of everything that results depend on.
#ifndef TLM_SERVER_LOADING_FINGERPRINT_H_
#define TLM_SERVER_LOADING_FINGERPRINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/ops/device.h"
#include "model/ops/weight_format.h"
#include "model/tensor/dtype.h"
#include "server/serving/build_info.h"
#include "server/serving/served_model.h"

namespace tlm {

// Types of the model's numbers on the device.
struct StoredTypes {
  WeightFormat weights = WeightFormat::kAsGiven;
  DType kv = DType::kF32;
  std::string calibration;  // the hash of the text of --calibration; empty: none
};

// A hash, hexadecimal, of
//
//   weights      `weights_identity`
//   config       the canonical text of the configuration
//   tokenizer    the file's hash
//   chat         the hash of the files of the chat template, the formats of answers
//   sampling     the default sampling parameters
//   build        build ids of the program and its libraries, results of the math library
//   device       backend and arithmetic (the instruction set, and a digest of computed values)
//   matrices     the WeightFormat they are stored in, and the hash of the calibration text
//   kv           the element type of keys and values
//
// Servers with the same fingerprint give the same tokens to the same request. Settings that change
// only speed or capacity (threads, step and queue sizes, the prefix cache, memory, guessed tokens)
// are left out, and so is --max_context, which ends a stream with its own reason. INTERNAL if
// libcrypto fails.
absl::StatusOr<std::string> FingerprintOf(const ServedModel& served,
                                          const std::string& weights_identity,
                                          const BuildInfo& build, const DeviceInfo& device,
                                          const StoredTypes& types);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_FINGERPRINT_H_
