#include "server/process/model_facts.h"

#include <algorithm>

#include "model/ops/ops.h"

namespace tlm {
namespace {

// As --kv_cache_dtype spells it.
std::string KvTypeName(DType dtype) {
  if (dtype == DType::kBF16) return "bfloat16";
  return dtype == DType::kF16 ? "float16" : "float32";
}

}  // namespace

ModelFacts FactsOf(const ServedModel& served) {
  ModelFacts facts;
  facts.name = served.model_id;
  facts.backend = served.backend;
  facts.device = served.device_name;
  facts.fingerprint = served.fingerprint;
  facts.max_context = served.limits.max_context_tokens;
  facts.kv_blocks = static_cast<int64_t>(served.memory.kv_blocks);
  facts.block_tokens = kBlockTokens;
  facts.kv_cache_dtype = KvTypeName(served.memory.kv_dtype);
  facts.prefix_cache = served.limits.engine.prefix_cache;
  return facts;
}

EngineFigures FiguresOf(const EngineStats& stats, absl::Time now) {
  EngineFigures figures;
  figures.running_sequences = stats.running_requests;
  figures.parked_sequences = stats.parked_requests;
  figures.waiting_requests = stats.waiting_requests;
  figures.waiting_tokens = stats.waiting_tokens;
  figures.kv_blocks_used = stats.kv_blocks_used;
  figures.kv_blocks_cached = stats.kv_blocks_cached;
  figures.kv_blocks_total = stats.kv_blocks_total;
  figures.steps = stats.steps;
  figures.prefill_tokens = stats.prefill_tokens;
  figures.decode_tokens = stats.decode_tokens;
  figures.preemptions = stats.preemptions;
  figures.cache_queried_tokens = stats.prefix_cache.queried_tokens;
  figures.cache_hit_tokens = stats.prefix_cache.hit_tokens;
  figures.cache_evicted_blocks = stats.prefix_cache.evicted_blocks;
  figures.cache_published_blocks = stats.prefix_cache.published_blocks;
  figures.failed_steps = stats.consecutive_faults;
  const absl::Duration age = stats.busy ? now - stats.last_progress : absl::ZeroDuration();
  figures.progress_age_seconds = absl::ToDoubleSeconds(std::max(age, absl::ZeroDuration()));
  figures.estimated_queue_seconds = absl::ToDoubleSeconds(stats.estimated_queue_time);
  return figures;
}

}  // namespace tlm
