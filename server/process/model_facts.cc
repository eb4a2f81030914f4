#include "server/process/model_facts.h"

#include "model/ops/ops.h"
#include "model/tensor/dtype.h"

namespace tlm {

ModelFacts FactsOf(const ServedModel& served) {
  ModelFacts facts;
  facts.name = served.model_id;
  facts.backend = served.backend;
  facts.device = served.device_name;
  facts.fingerprint = served.fingerprint;
  facts.max_context = served.limits.max_context_tokens;
  facts.kv_blocks = static_cast<int64_t>(served.memory.kv_blocks);
  facts.block_tokens = kBlockTokens;
  facts.kv_cache_dtype = KvDTypeName(served.memory.kv_dtype);
  facts.prefix_cache = served.limits.engine.prefix_cache;
  if (served.limits.engine.speculation != Speculation::kOff) {
    facts.max_draft_tokens = served.limits.engine.max_draft_tokens;
  }
  return facts;
}

}  // namespace tlm
