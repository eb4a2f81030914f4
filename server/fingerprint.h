// The name of everything that decides which tokens come out.
#ifndef TLM_SERVER_FINGERPRINT_H_
#define TLM_SERVER_FINGERPRINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "model/ops/device.h"
#include "model/tensor/dtype.h"
#include "server/rpc/served_model.h"

namespace tlm {

// A hash, hexadecimal, of the weights (`weights_identity` says which they are), what they mean (the
// configuration), the tokenizer, the program, the arithmetic of the device and the type of keys and
// values. INTERNAL if libcrypto refuses.
absl::StatusOr<std::string> FingerprintOf(const ServedModel& served,
                                          const std::string& weights_identity,
                                          const DeviceInfo& device, DType kv_dtype);

}  // namespace tlm

#endif  // TLM_SERVER_FINGERPRINT_H_
