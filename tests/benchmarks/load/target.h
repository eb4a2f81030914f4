// The server that is measured.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_
#define TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/load/generate_call.h"
#include "tlm/v1/model_info.pb.h"

namespace tlm::bench {

struct Target {
  load::Connections connections;
  v1::ModelInfoResponse model;
};

// Waits up to `timeout` for the server, asks it for ModelInfo, and establishes `connections`.
// FAILED_PRECONDITION for a number out of range; errors of Client::ModelInfo.
absl::StatusOr<Target> ConnectTo(const std::string& address, int connections,
                                 absl::Duration timeout);

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_
