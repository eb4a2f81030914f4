// Brings tensors into memory while they are in use.
#ifndef TLM_MODEL_WEIGHTS_TENSOR_PAGER_H_
#define TLM_MODEL_WEIGHTS_TENSOR_PAGER_H_

#include <span>

#include "absl/status/status.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// The tensors of a ModelWeights that has a pager may be read only while they are acquired. One
// thread at a time.
class TensorPager {
 public:
  virtual ~TensorPager() = default;

  // Brings tensors into memory; they are views of the weights, those without data are skipped. A
  // pager that checks values returns INVALID_ARGUMENT with the name of the first tensor that has
  // one that is not finite. Other statuses are the implementation's.
  virtual absl::Status Acquire(std::span<const TensorView> tensors) = 0;
  // Frees their memory: their values are undefined until they are acquired again.
  virtual void Release(std::span<const TensorView> tensors) = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_TENSOR_PAGER_H_
