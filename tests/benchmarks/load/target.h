// The server that is measured.
#ifndef TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_
#define TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm::bench {

// One thread at a time.
class Target {
 public:
  // Opens so many connections and asks for ModelInfo, waiting for the server up to `patience`. The
  // call's status if that fails; FAILED_PRECONDITION for a bad number of connections.
  static absl::StatusOr<std::unique_ptr<Target>> Connect(const std::string& address,
                                                         int connections, absl::Duration patience);

  // The connections take turns.
  v1::LanguageModel::Stub& NextStub();
  const v1::ModelInfoResponse& model() const { return model_; }

 private:
  Target() = default;

  std::vector<std::unique_ptr<v1::LanguageModel::Stub>> stubs_;
  size_t next_ = 0;
  v1::ModelInfoResponse model_;
};

}  // namespace tlm::bench

#endif  // TLM_TESTS_BENCHMARKS_LOAD_TARGET_H_
