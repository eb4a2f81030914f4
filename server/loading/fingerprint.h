// Computes the fingerprint: a hash of everything that results depend on.
#ifndef TLM_SERVER_LOADING_FINGERPRINT_H_
#define TLM_SERVER_LOADING_FINGERPRINT_H_

#include <cstddef>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "model/base/mutex.h"
#include "model/ops/device.h"
#include "model/ops/weight_format.h"
#include "model/tensor/dtype.h"
#include "model/weights/checkpoint.h"
#include "server/serving/build_info.h"
#include "server/serving/served_model.h"

namespace tlm {

// Computes a checkpoint's SHA-256 on a thread of the lowest priority. Owns the checkpoint until
// then.
class WeightsSha256 {
 public:
  // Checkpoints of at most `at_once_bytes` are hashed in the constructor: that takes a few
  // milliseconds.
  explicit WeightsSha256(Checkpoint checkpoint, size_t at_once_bytes = size_t{32} << 20);
  // Ends the thread without waiting for its result.
  ~WeightsSha256() = default;
  WeightsSha256(const WeightsSha256&) = delete;
  WeightsSha256& operator=(const WeightsSha256&) = delete;

  // Hexadecimal; empty until it is known. Thread-safe; does not block.
  std::string Get() const;
  // Like Get, but waits until there is a result.
  std::string Wait() const;

 private:
  void Compute(const Checkpoint& checkpoint, std::stop_token stop);

  mutable Mutex mutex_;
  mutable CondVar known_;
  bool done_ TLM_GUARDED_BY(mutex_) = false;
  std::string hex_ TLM_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses the other members
};

// The types of the model's numbers on the device.
struct StoredTypes {
  WeightFormat weights = WeightFormat::kAsGiven;
  DType kv = DType::kF32;
  std::string calibration;  // hash of the text of --calibration; empty: none
};

// Returns a hexadecimal hash of
//
//   weights      `weights_identity`
//   config       the canonical text of the configuration
//   tokenizer    the file's hash
//   chat         the hash of the files of the chat template, the formats of answers
//   sampling     the default sampling parameters
//   build        sources, compiler and flags of the program; build ids of its libraries; results of
//                the math library
//   device       backend and arithmetic (the instruction set, and a digest of computed values)
//   matrices     the WeightFormat they are stored in, and the hash of the calibration text
//   kv           the element type of keys and values
//
// Servers with the same fingerprint give the same tokens for the same request. The hash leaves out
// settings that change only speed or capacity (threads, step and queue sizes, the prefix cache,
// memory, guessed tokens), and --max_context, which ends a stream with its own reason. INTERNAL if
// libcrypto fails.
absl::StatusOr<std::string> FingerprintOf(const ServedModel& served,
                                          const std::string& weights_identity,
                                          const BuildInfo& build, const DeviceInfo& device,
                                          const StoredTypes& types);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_FINGERPRINT_H_
