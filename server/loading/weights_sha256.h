// The hash of the weight files, computed while the server already serves.
#ifndef TLM_SERVER_LOADING_WEIGHTS_SHA256_H_
#define TLM_SERVER_LOADING_WEIGHTS_SHA256_H_

#include <cstddef>
#include <string>
#include <thread>

#include "model/base/mutex.h"
#include "model/weights/checkpoint.h"

namespace tlm {

// Owns the checkpoint until its Sha256() is known, by a thread of the lowest priority.
class WeightsSha256 {
 public:
  // Checkpoints of at most `at_once_bytes` are hashed before this returns: a few milliseconds.
  explicit WeightsSha256(Checkpoint checkpoint, size_t at_once_bytes = size_t{32} << 20);
  // Ends the thread without waiting for its result.
  ~WeightsSha256() = default;
  WeightsSha256(const WeightsSha256&) = delete;
  WeightsSha256& operator=(const WeightsSha256&) = delete;

  // Hexadecimal; empty while it is not known. Thread-safe; does not block.
  std::string Get() const;
  // As Get, but waits until there is a result.
  std::string Wait() const;

 private:
  void Compute(const Checkpoint& checkpoint, std::stop_token stop);

  mutable Mutex mutex_;
  mutable CondVar known_;
  bool done_ TLM_GUARDED_BY(mutex_) = false;
  std::string hex_ TLM_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_WEIGHTS_SHA256_H_
