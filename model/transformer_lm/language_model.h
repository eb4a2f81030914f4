// The engine's interface to a model.
#ifndef TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_
#define TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"
#include "model/ops/device.h"

namespace tlm {

// A model that continues sequences; tests replace TransformerLM by a scripted one.
// Not thread-safe: only the engine thread calls it.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual int64_t vocab_size() const = 0;
  virtual const BatchLimits& limits() const = 0;
  virtual int64_t num_kv_blocks() const = 0;

  // Launch starts a batch, Wait returns the results of the oldest launched batch: the host prepares
  // the next batch while the device computes. A batch writes the keys and values of its tokens to
  // the cache, computes the requested logits and runs its sampling jobs. `batch` must not change
  // until Wait has returned its results; it is within limits() and its block ids are below
  // num_kv_blocks() (CHECKed). At most max_launched() batches may be in flight. Only a model with
  // max_launched() > 1 accepts PendingToken() as a token id; it means token 0 if its job fails.
  // Batches run in the order of launches. Wait returns INTERNAL for a device fault; the batch's
  // blocks of the cache are then undefined, and so is every batch launched before that Wait.
  virtual int max_launched() const { return 1; }
  // Whether the next batch may refer to tokens of the last launched batch. False if some of that
  // batch's jobs finish on the host.
  virtual bool TakesPendingTokens() const { return max_launched() > 1; }
  virtual void Launch(const Batch& batch) = 0;
  virtual absl::StatusOr<BatchResult> Wait() = 0;

  // Calls Launch and Wait; no other batch is in flight.
  absl::StatusOr<BatchResult> Forward(const Batch& batch) {
    Launch(batch);
    return Wait();
  }

  // Copies the keys and values of one KV block, of all layers, after the batches launched so far
  // and before the next one. Both ids are below num_kv_blocks() (CHECKed). Returns INTERNAL for a
  // device fault.
  virtual absl::Status CopyKvBlock(int32_t from, int32_t to) = 0;

  // Counts how the device has run the batches so far.
  virtual RunCounts run_counts() const { return {}; }
};

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_
