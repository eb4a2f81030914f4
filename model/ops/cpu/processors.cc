#include "model/ops/cpu/processors.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <sstream>

namespace tlm {
namespace {

// More processors than any machine has: with a smaller set the system call fails.
constexpr int kMaxProcessors = 8192;

// The arguments of sched_getattr(2) and sched_setattr(2): the first version, which all systems
// know. C libraries before 2.41 have neither functions nor types.
struct SchedulerAttributes {
  uint32_t size = sizeof(SchedulerAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // for SCHED_OTHER: the slice in nanoseconds
  uint64_t deadline = 0;
  uint64_t period = 0;
};

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

std::unique_ptr<cpu_set_t, FreeSet> EmptySet() {
  cpu_set_t* const set = CPU_ALLOC(kMaxProcessors);
  if (set != nullptr) CPU_ZERO_S(CPU_ALLOC_SIZE(kMaxProcessors), set);
  return std::unique_ptr<cpu_set_t, FreeSet>(set);
}

}  // namespace

std::vector<int> UsableProcessors() {
  std::vector<int> processors;
  const size_t bytes = CPU_ALLOC_SIZE(kMaxProcessors);
  const auto set = EmptySet();
  if (set == nullptr || sched_getaffinity(0, bytes, set.get()) != 0) return processors;
  for (int processor = 0; processor < kMaxProcessors; ++processor) {
    if (CPU_ISSET_S(processor, bytes, set.get())) processors.push_back(processor);
  }
  return processors;
}

std::optional<int> ProcessorsOfQuota(std::string_view cpu_max) {
  std::istringstream text{std::string(cpu_max)};
  int64_t quota = 0;
  int64_t period = 0;
  if (!(text >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, kMaxProcessors));
}

int DefaultThreads() {
  const int processors = std::max(1, static_cast<int>(UsableProcessors().size()));
  // This file exists if a container sees its own group as the root.
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string line;
  std::getline(file, line);
  return std::min(processors, ProcessorsOfQuota(line).value_or(processors));
}

bool RunOnProcessors(const std::vector<int>& processors) {
  const size_t bytes = CPU_ALLOC_SIZE(kMaxProcessors);
  const auto set = EmptySet();
  if (set == nullptr) return false;
  for (const int processor : processors) CPU_SET_S(processor, bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
}

std::optional<std::chrono::nanoseconds> SetTimeSlice(std::chrono::nanoseconds slice) {
  SchedulerAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return std::nullopt;
  const uint64_t before = attributes.runtime;
  if (attributes.policy != SCHED_OTHER || before == 0) return std::nullopt;
  attributes.runtime = static_cast<uint64_t>(slice.count());
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) != 0) return std::nullopt;
  return std::chrono::nanoseconds(before);
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown processor";
}

}  // namespace tlm
