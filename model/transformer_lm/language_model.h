// What the engine needs from a model.
#ifndef TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_
#define TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ops/batch.h"

namespace tlm {

// A model that continues sequences; tests let a scripted one stand in for TransformerLM.
// Not thread-safe: the engine thread alone calls it.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual int64_t vocab_size() const = 0;
  virtual const BatchLimits& limits() const = 0;
  virtual int64_t num_kv_blocks() const = 0;

  // Runs a batch in two halves, so that the host prepares the next one while a device computes:
  // Launch begins it, Wait returns the results of the oldest batch launched and not waited for. A
  // batch writes its tokens' keys and values into the cache, gives the logits it asks for and does
  // its sampling jobs. `batch` must not change until its results are there; it is within limits()
  // and its block ids are below num_kv_blocks() (CHECKed). At most max_launched() batches may be
  // waited for at a time, and only a model with more than one takes PendingToken() for a token id;
  // a job that fails stands for token 0. Batches run in the order of their launches. Wait's error
  // is INTERNAL, a device fault; the cache's blocks of that batch are then undefined, and so is
  // every batch launched before its results were there.
  virtual int max_launched() const { return 1; }
  // Whether the next batch may name tokens of the one launched last: not where some of its jobs
  // end on the host.
  virtual bool TakesPendingTokens() const { return max_launched() > 1; }
  virtual void Launch(const Batch& batch) = 0;
  virtual absl::StatusOr<BatchResult> Wait() = 0;

  // Both at once; nothing else is launched.
  absl::StatusOr<BatchResult> Forward(const Batch& batch) {
    Launch(batch);
    return Wait();
  }

  // Copies the keys and values of one KV block, of all layers, after the batches launched so far
  // and before the next one. Both ids are below num_kv_blocks() (CHECKed). INTERNAL: a device
  // fault.
  virtual absl::Status CopyKvBlock(int32_t from, int32_t to) = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_
