// Measures how much of a mapped file is resident in this process.
#ifndef TLM_TESTS_SUPPORT_MAPPED_MEMORY_H_
#define TLM_TESTS_SUPPORT_MAPPED_MEMORY_H_

#include <cstddef>
#include <fstream>
#include <string>

namespace tlm {

// Returns the resident bytes of all mappings of the file, as the kernel counts them.
inline size_t ResidentBytesOf(const std::string& path) {
  std::ifstream maps("/proc/self/smaps");
  size_t bytes = 0;
  bool is_of_file = false;
  for (std::string line; std::getline(maps, line);) {
    // "BEGIN-END rights offset device inode  PATH", then lines "Name: value".
    if (line.find('-') < line.find(' ')) is_of_file = line.ends_with(" " + path);
    if (is_of_file && line.starts_with("Rss:")) bytes += std::stoul(line.substr(4)) << 10;
  }
  return bytes;
}

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_MAPPED_MEMORY_H_
