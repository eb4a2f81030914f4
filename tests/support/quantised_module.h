// Makes random quantised matrices in the storage of AWQ, GPTQ, compressed-tensors and FP8
// checkpoints.
#ifndef TLM_TESTS_SUPPORT_QUANTISED_MODULE_H_
#define TLM_TESTS_SUPPORT_QUANTISED_MODULE_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "model/config/model_config.h"
#include "model/tensor/dtype.h"
#include "model/tensor/tensor_view.h"

namespace tlm {

struct StoredTensor {
  DType dtype;
  Shape shape;
  std::string bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

// The choices that the formats leave open.
struct QuantisedStorage {
  DType scales = DType::kF16;    // F16, BF16 or F32
  DType integers = DType::kI32;  // type of groups and shapes: I32 or I64
  bool stores_groups = false;    // with act_order they are shuffled, otherwise in order
  bool stores_zeros = true;      // also of symmetric schemes, in formats that allow it
};

// Adds the tensors of module `name` with random integers, zeros, scales and groups, packed here by
// the formats' definitions. Returns the elements [outputs, inputs] that they encode: float32 of
// (integer - zero) * scale, or of float * scale.
std::vector<float> AddQuantisedModule(const QuantisationScheme& scheme,
                                      const QuantisedStorage& storage, const std::string& name,
                                      int64_t outputs, int64_t inputs, std::mt19937_64& random,
                                      StoredTensors* tensors);

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_QUANTISED_MODULE_H_
