#include "tests/benchmarks/engine/op_timer.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "model/base/errors.h"
#include "tests/benchmarks/engine/statistics.h"

namespace tlm::bench {

void OpTimer::PrintHead() {
  fmt::print("{:<34} {:>10} {:>8} {:>9} {:>8}  {}\n", "operation", "us", "GB/s", "GFLOP/s",
             "of most", "by");
}

absl::StatusOr<double> OpTimer::SecondsOf(const std::function<absl::Status(int)>& call) {
  const uint64_t key = ++keys_ << 32;  // no key of a batch
  const auto all = [&call]() -> absl::Status {
    for (int i = 0; i < kCalls; ++i) TLM_RETURN_IF_ERROR(call(i));
    return absl::OkStatus();
  };
  std::vector<double> seconds;
  double total = 0;
  for (int run = 0; run < 3 || total < seconds_; ++run) {
    const absl::Time begin = absl::Now();
    TLM_RETURN_IF_ERROR(device_.RunCaptured(key, all));
    TLM_RETURN_IF_ERROR(device_.Synchronize());
    const double taken = absl::ToDoubleSeconds(absl::Now() - begin);
    if (run > 0) seconds.push_back(taken / kCalls);  // the first one warms up
    total += taken;
  }
  return Median(seconds);
}

absl::Status OpTimer::Time(const std::string& name, const OpWork& work,
                           const std::function<absl::Status(int)>& call,
                           const std::function<std::string()>& method) {
  TLM_ASSIGN_OR_RETURN(const double seconds, SecondsOf(call));
  const std::string by = method ? method() : std::string();
  const double flops = work.matmul_flops + work.float_flops;
  const double fraction = ceilings_.Fraction(seconds, work.cached ? 0 : work.bytes,
                                             work.matmul_flops, work.float_flops);
  fmt::print("{:<34} {:>10.2f} {:>8.1f} {:>9.1f} {:>8}  {}\n", name, 1e6 * seconds,
             work.bytes / seconds / 1e9, flops / seconds / 1e9,
             fraction > 0 ? fmt::format("{:.0f} %", 100 * fraction) : "-", by.empty() ? "-" : by);
  std::fflush(stdout);
  results_.push_back(
      {{"operation", name}, {"seconds", seconds}, {"bytes", work.bytes}, {"flops", flops}});
  if (fraction > 0) results_.back()["fraction_of_ceiling"] = fraction;
  if (!by.empty()) results_.back()["method"] = by;
  return save_(results_);
}

}  // namespace tlm::bench
