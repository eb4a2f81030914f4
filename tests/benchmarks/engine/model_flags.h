// The flags that choose the model of engine_bench and speculation_bench.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_MODEL_FLAGS_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_MODEL_FLAGS_H_

#include "absl/status/statusor.h"
#include "tests/benchmarks/engine/bench_model.h"

namespace tlm::bench {

// By --model, --preset, --weights_dtype, --kv_cache_dtype and --weights.
absl::StatusOr<ModelChoice> ModelFromFlags();

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_MODEL_FLAGS_H_
