// What the engine needs from a model.
#ifndef TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_
#define TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "model/transformer_lm/batch.h"

namespace tlm {

// The largest batch a model is built for; its workspaces are sized by it once.
struct BatchLimits {
  int64_t max_tokens = 0;       // of one batch
  int64_t max_sequences = 0;    // of one batch
  int64_t max_logits_rows = 0;  // of one batch
  int64_t max_context = 0;      // positions of a sequence; at most the model's context_length
};

// A model that continues sequences; tests let a scripted one stand in for TransformerLM.
// Not thread-safe: the engine thread alone calls it.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  virtual int64_t vocab_size() const = 0;
  virtual const BatchLimits& limits() const = 0;
  virtual int64_t num_kv_blocks() const = 0;

  // Runs the batch, writes its keys and values into the cache and returns the logits of
  // batch.logits_rows, [rows, vocab_size] row-major in host memory, valid until the next Forward.
  // `batch` is within limits() and its block ids are below num_kv_blocks() (CHECKed). INTERNAL: a
  // device fault; the cache's blocks of this batch are then undefined.
  virtual absl::StatusOr<std::span<const float>> Forward(const Batch& batch) = 0;

  // The same in two halves, so that the host prepares the next batch while a device computes this
  // one: Launch begins it, Wait returns what Forward would have. `batch` stays as it is until then;
  // exactly one Wait follows every Launch, and no other call comes between. A model that computes
  // on the calling thread leaves all of it to Wait.
  virtual void Launch(const Batch& batch) { launched_ = &batch; }
  virtual absl::StatusOr<std::span<const float>> Wait() { return Forward(*launched_); }

  // Copies the keys and values of one KV block, of all layers, before the next Forward. Both ids
  // are below num_kv_blocks() (CHECKed). INTERNAL: a device fault.
  virtual absl::Status CopyKvBlock(int32_t from, int32_t to) = 0;

 private:
  const Batch* launched_ = nullptr;
};

}  // namespace tlm

#endif  // TLM_MODEL_TRANSFORMER_LM_LANGUAGE_MODEL_H_
