// Whether a row of a matrix product has the same bits with every method and in every batch: the
// test that decides how far a vendor's library may be used (GemmLibrary).
#ifndef TLM_TESTS_GPU_CANON_PRODUCT_CHECK_H_
#define TLM_TESTS_GPU_CANON_PRODUCT_CHECK_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "model/ops/cuda/device/cuda_device.h"
#include "model/ops/cuda/gemm/gemm_library.h"
#include "model/tensor/dtype.h"

namespace tlm {

struct ProductShape {
  std::string name;
  int64_t n = 0;  // rows of the weight matrix, both halves of a gated one
  int64_t k = 0;
  DType dtype = DType::kBF16;
  bool gated = false;
  bool logits = false;  // fp32 outputs
};

struct ProductCheck {
  bool library = false;  // computes the products of more than 64 rows
  int64_t runs = 0;
  int64_t different_runs = 0;  // from the same rows computed alone
  int64_t different_elements = 0;
  std::string first;  // difference; empty if there is none
  // Against the model in C++ of the chain over k, by a sample of outputs; none of a gated product.
  int64_t model_elements = 0;
  int64_t model_differences = 0;
};

// Computes two rows alone and then among the rows of batches of every size in `row_counts`
// (ascending): at the first, a middle and the last place, among random rows and among NaNs. One of
// the two has sums that cancel, so that any other order of summation shows. `library` may be null.
// RESOURCE_EXHAUSTED: the largest batch does not fit the device.
absl::StatusOr<ProductCheck> CheckProduct(CudaDevice& device, GemmLibrary* library,
                                          const ProductShape& shape,
                                          std::span<const int64_t> row_counts);

}  // namespace tlm

#endif  // TLM_TESTS_GPU_CANON_PRODUCT_CHECK_H_
