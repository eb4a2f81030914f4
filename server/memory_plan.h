// What a server computes at once and how much memory it takes for that, decided before any is
// taken.
#ifndef TLM_SERVER_MEMORY_PLAN_H_
#define TLM_SERVER_MEMORY_PLAN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "model/config/model_config.h"
#include "model/kv_cache/kv_storage.h"
#include "model/ops/device.h"
#include "model/transformer_lm/language_model.h"
#include "server/options.h"

namespace tlm {

// Bytes of the weights before and after they are brought to the device.
struct WeightBytes {
  uint64_t host = 0;  // only while loading; without the page cache
  uint64_t device = 0;
};

struct MemoryPlan {
  BatchLimits batch;
  int64_t kv_blocks = 0;
};

// `available`: bytes that may be taken, where the device's memory is the host's. INVALID_ARGUMENT
// for limits the model cannot keep and for a KV cache that does not hold one context;
// RESOURCE_EXHAUSTED, with every figure, when the model and one context do not fit.
absl::StatusOr<MemoryPlan> PlanMemory(const ServerOptions& options, const ModelConfig& config,
                                      const WeightBytes& weights, const KvShape& kv,
                                      const DeviceInfo& device, uint64_t available);

}  // namespace tlm

#endif  // TLM_SERVER_MEMORY_PLAN_H_
