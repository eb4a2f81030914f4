#include "client/cli/bench_result.h"

namespace tlm::cli {

void BenchResult::AddFailure(const std::string& code, const std::string& reason) {
  constexpr size_t kMaxReasonBytes = 64;
  ++failed;
  const std::pair<std::string, std::string> kind(code, reason.substr(0, kMaxReasonBytes));
  if (failures.size() < kMaxKinds || failures.contains(kind)) {
    ++failures[kind];
  } else {
    ++failures[{"OTHER", ""}];
  }
}

}  // namespace tlm::cli
