#include "server/observe/process_figures.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace tlm {
namespace {

std::string ReadSmallFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Boot time in seconds since the Epoch; 0: unknown.
double BootTime() {
  std::istringstream lines(ReadSmallFile("/proc/stat"));
  std::string word;
  double value = 0;
  while (lines >> word) {
    if (word == "btime" && lines >> value) return value;
  }
  return 0;
}

double OpenFds() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  double count = 0;
  while (const dirent* entry = readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  closedir(directory);
  return count - 1;  // without the directory's own descriptor
}

// Returns the fields of /proc/self/stat after the program's name, which may contain any character.
std::vector<double> StatFields() {
  const std::string stat = ReadSmallFile("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream words(stat.substr(name_end + 1));
  std::string state;
  words >> state;
  std::vector<double> fields = {0};
  for (double value = 0; words >> value;) fields.push_back(value);
  return fields;
}

}  // namespace

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures;
  const std::vector<double> fields = StatFields();
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? fields[number - 3] : 0;
  };
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  static const double boot_time = BootTime();
  figures.cpu_seconds = (field(14) + field(15)) / ticks;
  figures.threads = field(20);
  figures.start_time = boot_time + field(22) / ticks;
  figures.virtual_bytes = field(23);
  figures.resident_bytes = field(24) * static_cast<double>(sysconf(_SC_PAGESIZE));
  figures.open_fds = OpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    figures.max_fds = limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<double>::infinity()
                                                      : static_cast<double>(limit.rlim_cur);
  }
  return figures;
}

}  // namespace tlm
