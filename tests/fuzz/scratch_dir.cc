#include "tests/fuzz/scratch_dir.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "model/base/errors.h"

namespace tlm {
namespace {

// In memory where the system has such a place: a target writes thousands of files a second.
std::filesystem::path Parent() {
  std::error_code error;
  const std::filesystem::path memory = "/dev/shm";
  return std::filesystem::is_directory(memory, error) ? memory
                                                      : std::filesystem::temp_directory_path();
}

}  // namespace

ScratchDir::ScratchDir() : path_((Parent() / "tlm-fuzz-XXXXXX").string()) {
  TLM_CHECK(mkdtemp(path_.data()) != nullptr);
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ScratchDir::Write(std::string_view name, std::string_view content) const {
  const std::string path = path_ + "/" + std::string(name);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  TLM_CHECK(file.good());
  return path;
}

void ScratchDir::Remove(std::string_view name) const {
  std::error_code ignored;
  std::filesystem::remove(path_ + "/" + std::string(name), ignored);
}

}  // namespace tlm
