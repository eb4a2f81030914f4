// Converts the quantised matrices of a Hugging Face checkpoint to blocks while they are packed.
#ifndef TLM_MODEL_WEIGHTS_QUANTISED_WEIGHTS_H_
#define TLM_MODEL_WEIGHTS_QUANTISED_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "model/weights/checkpoint.h"
#include "model/weights/model_weights.h"

namespace tlm {

// Move-only; the views of weights() stay valid after a move.
class QuantisedWeights {
 public:
  // `bound` is BindWeights of the other two; `checkpoint` outlives the result. Reserves address
  // space, and allocates memory only for the orders of inputs. Returns RESOURCE_EXHAUSTED if the
  // space is too small. `threads` threads convert; 0: all processors.
  static absl::StatusOr<QuantisedWeights> Reserve(const ModelConfig& config,
                                                  const ModelWeights& bound,
                                                  const Checkpoint& checkpoint, int threads = 0);
  ~QuantisedWeights();
  QuantisedWeights(QuantisedWeights&&) noexcept;
  QuantisedWeights& operator=(QuantisedWeights&&) noexcept;

  // Peak memory, in addition to the files' memory, while only the tensors of one layer, or one
  // tensor outside the layers, are acquired at a time; 0 without quantised matrices.
  static uint64_t ResidentBytesFor(const ModelConfig& config, const ModelWeights& bound);

  // Sets the pager that brings the checkpoint's tensors into memory. It outlives this object. Call
  // before the first Acquire.
  void ReadBy(TensorPager* pager);

  // The bound tensors. Quantised ones are replaced by the same elements in blocks, which are in
  // memory while they are acquired. Matrices with the same order of inputs share it. Acquire also
  // acquires the stored tensors; it also returns INVALID_ARGUMENT for scales that make elements
  // non-finite.
  const ModelWeights& weights() const { return weights_; }
  // Returns the checkpoint's tensors that store the values of `tensor`, one of weights(): `tensor`
  // itself if it is not quantised.
  std::vector<TensorView> StoredOf(const TensorView& tensor) const;

 private:
  class Pager;
  QuantisedWeights();

  std::unique_ptr<Pager> pager_;  // owns the memory
  ModelWeights weights_;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_QUANTISED_WEIGHTS_H_
