#include "server/fingerprint.h"

#include <fmt/format.h>

#include "model/base/sha256.h"
#include "model/config/canonical_text.h"

namespace tlm {

absl::StatusOr<std::string> FingerprintOf(const ServedModel& served,
                                          const std::string& weights_identity,
                                          const DeviceInfo& device, DType kv_dtype) {
  constexpr int kFormat = 2;
  return Sha256Hex(fmt::format(
      "format {}\nweights {}\ntokenizer {}\nversion {}\nbackend {}\narithmetic {}\nkv {}\n{}",
      kFormat, weights_identity, served.tokenizer_sha256, served.server_version, device.backend,
      device.arithmetic, DTypeName(kv_dtype), CanonicalText(served.config)));
}

}  // namespace tlm
