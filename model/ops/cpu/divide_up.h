#ifndef TLM_MODEL_OPS_CPU_DIVIDE_UP_H_
#define TLM_MODEL_OPS_CPU_DIVIDE_UP_H_

#include <cstdint>

namespace tlm {

// value / by, rounded up; value >= 0, by > 0.
constexpr int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace tlm

#endif  // TLM_MODEL_OPS_CPU_DIVIDE_UP_H_
