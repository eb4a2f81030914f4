// The owner of tensors that need not be in memory all at once.
#ifndef TLM_MODEL_WEIGHTS_TENSOR_LENDER_H_
#define TLM_MODEL_WEIGHTS_TENSOR_LENDER_H_

#include <span>

#include "absl/status/status.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

// Whoever reads the tensors of a ModelWeights that has a lender borrows them first. One thread at a
// time.
class TensorLender {
 public:
  virtual ~TensorLender() = default;

  // Brings tensors to memory, all of which are views of the weights (those without data are passed
  // over), and looks at every value where that is asked of this lender: INVALID_ARGUMENT names the
  // first tensor with one that is not finite. Other statuses as the lender says.
  virtual absl::Status Lend(std::span<const TensorView> tensors) = 0;
  // Gives their memory back: what they hold is undefined until they are lent again.
  virtual void Return(std::span<const TensorView> tensors) = 0;
};

}  // namespace tlm

#endif  // TLM_MODEL_WEIGHTS_TENSOR_LENDER_H_
