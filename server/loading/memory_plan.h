// Plans the sizes of batches and of the KV cache, and their memory, before any allocation.
#ifndef TLM_SERVER_LOADING_MEMORY_PLAN_H_
#define TLM_SERVER_LOADING_MEMORY_PLAN_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/kv_cache/kv_storage.h"
#include "model/ops/device.h"
#include "model/transformer_lm/packed_weights.h"
#include "server/config/options.h"

namespace tlm {

struct MemoryPlan {
  PackingPlan weights;
  BatchLimits batch;
  int64_t kv_blocks = 0;
  DType kv_dtype = DType::kF32;
};

// Memory of a model on a device, in the order of allocation.
struct MemoryNeeds {
  PackingPlan weights;
  // Returns the bytes of intermediate results for batches within the limits;
  // TransformerLM::WorkspaceBytes.
  std::function<uint64_t(const BatchLimits&)> workspace;
  KvShape kv;
};

// The needs of a draft model, which is loaded after the model.
struct DraftNeeds {
  MemoryNeeds memory;
  int64_t context_length = 0;
};

// INVALID_ARGUMENT for a --max_context above the model's.
absl::Status CheckContext(const ServerOptions& options, const ModelConfig& config);

// `available`: bytes of host memory that may be used. On a GPU, --gpu_memory_fraction of its memory
// may be used, but no more than is free: the KV cache gets what weights, workspace and a reserve
// for the CUDA runtime leave. `options` has the step sizes from WithStepSizes. With a draft model
// (`draft` may be null), the plan leaves room for it, and both share the KV cache's memory: a block
// of each for the same tokens. INVALID_ARGUMENT as from CheckContext(), and for a KV cache that
// does not hold one context; RESOURCE_EXHAUSTED, with every number, when the model and one context
// do not fit.
absl::StatusOr<MemoryPlan> PlanMemory(const ServerOptions& options, const ModelConfig& config,
                                      const MemoryNeeds& needs, const DeviceInfo& device,
                                      uint64_t available, const DraftNeeds* draft = nullptr);

// Returns the draft model's part of that plan: no more blocks than its context can use.
MemoryPlan PlanDraft(const MemoryPlan& plan, const DraftNeeds& draft);

}  // namespace tlm

#endif  // TLM_SERVER_LOADING_MEMORY_PLAN_H_
