// Where and with what a measurement was made.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_MACHINE_H_
#define TLM_TESTS_BENCHMARKS_LOAD_MACHINE_H_

#include <nlohmann/json.hpp>

#include "tlm/v1/model_info.pb.h"

namespace tlm::bench {

// Processor, how many of them this process may use, memory, kernel, load average now; compiler and
// libraries of this program; the time.
nlohmann::ordered_json DescribeMachine();

// Which model, on what, by which program.
nlohmann::ordered_json DescribeServer(const v1::ModelInfoResponse& model);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_MACHINE_H_
