#include "server/loading/fingerprint.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "model/base/sha256.h"
#include "model/base/thread_name.h"
#include "model/config/canonical_text.h"

namespace tlm {
namespace {

constexpr int kFormat = 7;

std::string SamplingText(const SamplingParams& sampling) {
  return fmt::format("temperature {} top_k {} top_p {} min_p {} typical_p {} repetition {}",
                     sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p,
                     sampling.typical_p, sampling.repetition_penalty);
}

// Constraints depend on these formats.
std::string ChatFormatText(const ChatFormat& format) {
  return fmt::format("reasoning {} tools {}",
                     format.reasoning != nullptr ? format.reasoning->name : "none",
                     format.tools != nullptr ? format.tools->name : "none");
}

}  // namespace

WeightsSha256::WeightsSha256(Checkpoint checkpoint, size_t at_once_bytes) {
  if (checkpoint.tensor_bytes() <= at_once_bytes) {
    Compute(checkpoint, {});
    return;
  }
  thread_ = std::jthread(
      [this](std::stop_token stop, const Checkpoint& owned) {
        LowerPriority();
        Compute(owned, stop);
      },
      std::move(checkpoint));
}

void WeightsSha256::Compute(const Checkpoint& checkpoint, std::stop_token stop) {
  absl::StatusOr<std::string> hex = checkpoint.Sha256(stop);
  if (!hex.ok() && !absl::IsCancelled(hex.status())) {
    spdlog::warn("no SHA-256 of the weights: {}", std::string(hex.status().message()));
  }
  const MutexLock lock(&mutex_);
  if (hex.ok()) hex_ = *std::move(hex);
  done_ = true;
  known_.NotifyAll();
}

std::string WeightsSha256::Get() const {
  const MutexLock lock(&mutex_);
  return hex_;
}

std::string WeightsSha256::Wait() const {
  const MutexLock lock(&mutex_);
  while (!done_) known_.Wait(&mutex_);
  return hex_;
}

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
