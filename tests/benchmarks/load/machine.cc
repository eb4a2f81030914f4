#include "tests/benchmarks/load/machine.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace tlm::bench {
namespace {

std::string CpuModel() {
  constexpr char kKey[] = "model name";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with(kKey) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int UsableCpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

int64_t MemoryBytes() { return int64_t{sysconf(_SC_PHYS_PAGES)} * int64_t{sysconf(_SC_PAGESIZE)}; }

std::string Kernel() {
  utsname name = {};
  return uname(&name) == 0 ? std::string(name.sysname) + " " + name.release : "unknown";
}

double LoadAverage() {
  double minute = 0;
  return getloadavg(&minute, 1) == 1 ? minute : 0;
}

}  // namespace

nlohmann::ordered_json DescribeMachine() {
  return {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone())},
      {"cpu", CpuModel()},
      {"cpus", UsableCpus()},
      {"memory_bytes", MemoryBytes()},
      {"kernel", Kernel()},
      {"load_average_before", LoadAverage()},
      {"compiler", __VERSION__},
#ifdef NDEBUG
      {"optimised", true},
#else
      {"optimised", false},
#endif
      {"grpc", grpc::Version()},
      {"protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)},
  };
}

nlohmann::ordered_json DescribeServer(const v1::ModelInfoResponse& model) {
  const v1::ModelIdentity& identity = model.identity();
  return {
      {"server_version", identity.server_version()},
      {"backend", identity.backend()},
      {"device", identity.device_name()},
      {"model", identity.model_id()},
      {"architecture", identity.architecture()},
      {"parameters", model.parameters().total()},
      {"vocab_size", model.architecture().vocab_size()},
      {"max_context_tokens", model.limits().max_context_tokens()},
      {"fingerprint", model.determinism().fingerprint()},
  };
}

}  // namespace tlm::bench
