// Bucket bounds of histograms. Metrics named vllm: have the bounds of vLLM 0.9 and later.
#ifndef TLM_SERVER_OBSERVE_BUCKETS_H_
#define TLM_SERVER_OBSERVE_BUCKETS_H_

#include <cstdint>
#include <vector>

namespace tlm {

// Seconds.
std::vector<double> FirstTokenBuckets();
std::vector<double> InterTokenBuckets();
std::vector<double> RequestTimeBuckets();
std::vector<double> StepTimeBuckets();
// 0.1 ms to 1000 s in steps of factor 1.33 to 1.67, for the latencies named tlm_.
std::vector<double> LatencyBuckets();

// Tokens per step.
std::vector<double> StepTokenBuckets();
// Tokens per request: 1, 2, 5, 10, 20, ... up to `max_context`.
std::vector<double> RequestTokenBuckets(int64_t max_context);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_BUCKETS_H_
