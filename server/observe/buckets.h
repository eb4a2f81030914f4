// Bucket bounds of histograms; those of metrics that vLLM has too are vLLM's (0.9 and later).
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

// Tokens of a step.
std::vector<double> StepTokenBuckets();
// Tokens of a request: 1, 2, 5, 10, 20, ... up to `max_context`.
std::vector<double> RequestTokenBuckets(int64_t max_context);

}  // namespace tlm

#endif  // TLM_SERVER_OBSERVE_BUCKETS_H_
