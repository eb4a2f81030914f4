#include "model/weights/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace tlm {
namespace {

// Returns the number after `key` in a file of lines "key number ...".
std::optional<uint64_t> FindNumber(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    if (word != key) continue;
    uint64_t number = 0;
    if (file >> number) return number;
    return std::nullopt;
  }
  return std::nullopt;
}

// Returns nullopt if the file says "max".
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Returns the process's control group; "/" in a container that sees only its own.
std::string ControlGroup(const std::string& root) {
  std::ifstream file(root + "proc/self/cgroup");
  constexpr std::string_view kPrefix = "0::";
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, kPrefix.size(), kPrefix) == 0) return line.substr(kPrefix.size());
  }
  return "/";
}

// Returns the least that the group and its ancestors have left: each limit less the group's memory
// without page cache.
std::optional<uint64_t> AvailableToGroup(const std::string& root) {
  std::optional<uint64_t> available;
  std::string group = ControlGroup(root);
  while (true) {
    const std::string folder = root + "sys/fs/cgroup" + (group == "/" ? "" : group);
    if (const std::optional<uint64_t> limit = ReadNumber(folder + "/memory.max")) {
      const uint64_t held = FindNumber(folder + "/memory.stat", "anon").value_or(0) +
                            FindNumber(folder + "/memory.stat", "shmem").value_or(0);
      const uint64_t left = *limit - std::min(*limit, held);
      available = std::min(available.value_or(left), left);
    }
    const size_t slash = group.find_last_of('/');
    if (group == "/" || slash == std::string::npos) return available;
    group.resize(std::max<size_t>(slash, 1));
  }
}

}  // namespace

uint64_t AvailableHostMemoryBelow(const std::string& root) {
  uint64_t available =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (const std::optional<uint64_t> kib = FindNumber(root + "proc/meminfo", "MemAvailable:")) {
    available = *kib * 1024;
  }
  return std::min(available, AvailableToGroup(root).value_or(available));
}

uint64_t AvailableHostMemory() { return AvailableHostMemoryBelow("/"); }

}  // namespace tlm
