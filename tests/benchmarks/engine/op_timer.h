// Times single operations of a backend.
#ifndef TLM_TESTS_BENCHMARKS_ENGINE_OP_TIMER_H_
#define TLM_TESTS_BENCHMARKS_ENGINE_OP_TIMER_H_

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "model/ops/device.h"
#include "tests/benchmarks/engine/cpu_ceilings.h"

namespace tlm::bench {

// The work of an operation.
struct OpWork {
  double bytes = 0;         // read and written
  double matmul_flops = 0;  // of products with weights, and with keys and values of their type
  double float_flops = 0;   // of products of floats
  bool cached = false;      // the bytes are in caches, as between a model's operations: memory
                            // bandwidth does not bound it
};

class OpTimer {
 public:
  // Calls recorded together, so that launch costs do not dominate.
  static constexpr int kCalls = 20;

  using Json = nlohmann::ordered_json;
  using Save = std::function<absl::Status(const Json& results)>;

  // The first two outlive it; every operation is timed for at least `seconds`, and `save` is called
  // after each with all results so far.
  OpTimer(Device& device, const CpuCeilings& ceilings, double seconds, Save save)
      : device_(device), ceilings_(ceilings), seconds_(seconds), save_(std::move(save)) {}

  // Prints the head of the table.
  static void PrintHead();
  // Times `call`, which gets numbers from 0 to kCalls - 1, and prints a line, with what `method`
  // says afterwards, unless it is empty. Errors of the calls and of `save`.
  absl::Status Time(const std::string& name, const OpWork& work,
                    const std::function<absl::Status(int)>& call,
                    const std::function<std::string()>& method = {});

 private:
  // The median seconds of one call.
  absl::StatusOr<double> SecondsOf(const std::function<absl::Status(int)>& call);

  Device& device_;
  const CpuCeilings& ceilings_;
  const double seconds_;
  const Save save_;
  uint64_t keys_ = 0;
  Json results_ = Json::array();
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_ENGINE_OP_TIMER_H_
