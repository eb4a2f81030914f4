#include "server/loading/weights_sha256.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "model/base/thread_name.h"

namespace tlm {
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

}  // namespace tlm
