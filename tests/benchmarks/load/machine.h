// Descriptions of the machine and the server of a measurement.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_MACHINE_H_
#define TLM_TESTS_BENCHMARKS_LOAD_MACHINE_H_

#include <nlohmann/json.hpp>

#include "tlm/v1/model_info.pb.h"

namespace tlm::bench {

// CPU, number of CPUs this process may use, memory, kernel, current load average; compiler and
// libraries of this program; the time.
nlohmann::ordered_json DescribeMachine();

// Version, device and model of the server.
nlohmann::ordered_json DescribeServer(const v1::ModelInfoResponse& model);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_MACHINE_H_
