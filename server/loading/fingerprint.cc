#include "server/loading/fingerprint.h"

#include <fmt/format.h>

#include "model/base/sha256.h"
#include "model/config/canonical_text.h"

namespace tlm {
namespace {

constexpr int kFormat = 7;

std::string SamplingText(const SamplingParams& sampling) {
  return fmt::format("temperature {} top_k {} top_p {} min_p {} typical_p {} repetition {}",
                     sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                     sampling.typical_p, sampling.repetition_penalty);
}

// Constraints follow them.
std::string ChatFormatText(const ChatFormat& format) {
  return fmt::format("reasoning {} tools {}",
                     format.reasoning != nullptr ? format.reasoning->name : "none",
                     format.tools != nullptr ? format.tools->name : "none");
}

}  // namespace

absl::StatusOr<std::string> FingerprintOf(const ServedModel& served,
                                          const std::string& weights_identity,
                                          const BuildInfo& build, const DeviceInfo& device,
                                          const StoredTypes& types) {
  return Sha256Hex(fmt::format(
      "format {}\nweights {}\ntokenizer {}\nchat {} {}\nsampling {}\nversion {}\nbuild "
      "{}\nmath {}\n"
      "backend {}\narithmetic {} {}\nmatrices {} {}\nkv {}\nlibraries\n{}config\n{}",
      kFormat, weights_identity, served.tokenizer_sha256, served.chat_sha256,
      ChatFormatText(served.chat_format), SamplingText(served.default_sampling),
      served.server_version, build.build_id, build.math, device.backend, device.arithmetic,
      device.arithmetic_probe, WeightFormatName(types.weights), types.calibration,
      DTypeName(types.kv), build.libraries, CanonicalText(served.config)));
}

}  // namespace tlm
