// Weights quantised in blocks, as float32 while they are packed.
#ifndef TLM_MODEL_WEIGHTS_WIDENED_WEIGHTS_H_
#define TLM_MODEL_WEIGHTS_WIDENED_WEIGHTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Move-only; the views of weights() stay valid wherever it is moved.
class WidenedWeights {
 public:
  // `stored` has a pager, and its tensors are those of `checkpoint`; all outlive the result. Takes
  // address space alone: RESOURCE_EXHAUSTED where that is too small.
  static absl::StatusOr<WidenedWeights> Reserve(const ModelConfig& config,
                                                const ModelWeights& stored,
                                                const Checkpoint& checkpoint, int threads = 0);
  ~WidenedWeights();
  WidenedWeights(WidenedWeights&&) noexcept;
  WidenedWeights& operator=(WidenedWeights&&) noexcept;

  // Whether there is a tensor in blocks.
  static bool AreNeeded(const ModelConfig& config, const ModelWeights& stored);
  // Peak memory while only the tensors of one layer, or one tensor outside the layers, are acquired
  // at a time, besides the files'.
  static uint64_t ResidentBytesFor(const ModelConfig& config, const ModelWeights& stored);

  // The stored tensors; in place of those in blocks the same elements as F32, which are in memory
  // while they are acquired. Acquiring acquires the stored ones; INVALID_ARGUMENT also for an
  // element that is not finite, as CheckFinite.
  const ModelWeights& weights() const { return weights_; }

 private:
  class Pager;
  WidenedWeights();

  std::unique_ptr<Pager> pager_;  // has the memory
  ModelWeights weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_WIDENED_WEIGHTS_H_
