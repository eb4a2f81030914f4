#include "model/ops/cpu/processors.h"

#include <sched.h>

#include <fstream>
#include <memory>

namespace tlm {
namespace {

// More than any machine's: with a smaller set the system refuses to answer.
constexpr int kMaxProcessors = 8192;

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

bool RunOnProcessors(const std::vector<int>& processors) {
  const size_t bytes = CPU_ALLOC_SIZE(kMaxProcessors);
  const auto set = EmptySet();
  if (set == nullptr) return false;
  for (const int processor : processors) CPU_SET_S(processor, bytes, set.get());
  return sched_setaffinity(0, bytes, set.get()) == 0;
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
