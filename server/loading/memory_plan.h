// What a server computes at once and how much memory it takes for that, decided before any is
// taken.
#ifndef TLM_SERVER_LOADING_MEMORY_PLAN_H_
#define TLM_SERVER_LOADING_MEMORY_PLAN_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/kv_cache/kv_storage.h"
#include "model/ops/device.h"
#include "model/transformer_lm/language_model.h"
#include "server/config/options.h"

namespace tlm {

// Bytes of the weights before and after they are brought to the device.
struct WeightBytes {
  uint64_t host = 0;  // only while loading; without the page cache
  uint64_t device = 0;
};

struct MemoryPlan {
  BatchLimits batch;
  int64_t kv_blocks = 0;
  DType kv_dtype = DType::kF32;
};

// What a model takes of a device, in the order it is taken.
struct MemoryNeeds {
  WeightBytes weights;
  // For intermediate results of batches within the limits; TransformerLM::WorkspaceBytes.
  std::function<uint64_t(const BatchLimits&)> workspace;
  KvShape kv;
};

// INVALID_ARGUMENT for a --max_context that the model cannot keep.
absl::Status CheckContext(const ServerOptions& options, const ModelConfig& config);

// `available`: bytes of the host's memory that may be taken. Of a GPU's, --gpu_memory_fraction of
// all and no more than is free may be; what weights and workspace leave goes to keys and values,
// but for a reserve that the runtime takes by and by. Step sizes are those of WithStepSizes.
// INVALID_ARGUMENT as CheckContext() and for a KV cache that does not hold one
// context; RESOURCE_EXHAUSTED, with every figure, when the model and one context do not fit.
absl::StatusOr<MemoryPlan> PlanMemory(const ServerOptions& options, const ModelConfig& config,
                                      const MemoryNeeds& needs, const DeviceInfo& device,
                                      uint64_t available);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MEMORY_PLAN_H_
