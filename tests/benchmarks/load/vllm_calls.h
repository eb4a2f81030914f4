// Generate calls by vLLM's protocol: what the façade adds to a call shows in comparison.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_VLLM_CALLS_H_
#define TLM_TESTS_BENCHMARKS_LOAD_VLLM_CALLS_H_

#include "client/load/generate_call.h"

namespace tlm::bench {

// vllm.grpc.engine.VllmEngine.Generate, for requests of Workload: sampling, max_new_tokens and
// ignore_eos are sent, the seed modulo 2^31. Priorities are not.
load::PrepareCall VllmCalls();

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_VLLM_CALLS_H_
