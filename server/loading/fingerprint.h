// The name of everything that decides which tokens come out.
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

// What a device holds the model's numbers as.
struct StoredTypes {
  WeightFormat weights = WeightFormat::kAsGiven;
  DType kv = DType::kF32;
};

// A hash, hexadecimal, of
//
//   weights      `weights_identity` says which they are
//   config       what they mean (the canonical text of the configuration)
//   tokenizer    the file's hash
//   chat         the hash of what conversations are rendered with
//   sampling     what requests get that leave a parameter unset
//   build        the program, its libraries and their way through the processor
//   device       backend and arithmetic (the instruction set's path, and bits of what it computes)
//   matrices     what they are stored as
//   kv           the element type of keys and values
//
// Servers with the same fingerprint give the same tokens to the same request. What only decides how
// fast or how many (threads, step and queue sizes, the prefix cache, memory) is left out, and so is
// --max_context, which ends a stream with a reason of its own. INTERNAL if libcrypto refuses.
absl::StatusOr<std::string> FingerprintOf(const ServedModel& served,
                                          const std::string& weights_identity,
                                          const BuildInfo& build, const DeviceInfo& device,
                                          const StoredTypes& types);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_FINGERPRINT_H_
