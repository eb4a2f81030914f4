// The quantised matrices of a Hugging Face checkpoint, as blocks while they are packed.
#ifndef TLM_MODEL_WEIGHTS_QUANTISED_WEIGHTS_H_
#define TLM_MODEL_WEIGHTS_QUANTISED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Move-only; the views of weights() stay valid wherever it is moved.
class QuantisedWeights {
 public:
  // `bound` are BindWeights of the other two; `checkpoint` outlives the result. Takes address
  // space, and memory for the orders of inputs alone: RESOURCE_EXHAUSTED where the space is too
  // small. `threads` convert; 0: all processors.
  static absl::StatusOr<QuantisedWeights> Reserve(const ModelConfig& config,
                                                  const ModelWeights& bound,
                                                  const Checkpoint& checkpoint, int threads = 0);
  ~QuantisedWeights();
  QuantisedWeights(QuantisedWeights&&) noexcept;
  QuantisedWeights& operator=(QuantisedWeights&&) noexcept;

  // Peak memory while only the tensors of one layer, or one tensor outside the layers, are acquired
  // at a time, besides the files'; 0 without quantised matrices.
  static uint64_t ResidentBytesFor(const ModelConfig& config, const ModelWeights& bound);

  // Before the first Acquire: what brings the checkpoint's tensors into memory, which outlives
  // this.
  void ReadBy(TensorPager* pager);

  // The bound tensors; in place of the quantised ones the same elements in blocks, which are in
  // memory while they are acquired. Matrices of the same order of inputs share it. Acquiring
  // acquires the stored tensors; INVALID_ARGUMENT also for scales with which elements are not
  // finite.
  const ModelWeights& weights() const { return weights_; }
  // The checkpoint's tensors with the values of one of weights(); of one that is not quantised
  // itself.
  std::vector<TensorView> StoredOf(const TensorView& tensor) const;

 private:
  class Pager;
  QuantisedWeights();

  std::unique_ptr<Pager> pager_;  // has the memory
  ModelWeights weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_QUANTISED_WEIGHTS_H_
