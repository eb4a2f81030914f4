// Files for parsers that open them by name.
#ifndef TLM_TESTS_FUZZ_SCRATCH_DIR_H_
#define TLM_TESTS_FUZZ_SCRATCH_DIR_H_

#include <string>
#include <string_view>

namespace tlm {

// A directory of this process, removed when the object dies. Ends the process when the system
// refuses.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;

  const std::string& path() const { return path_; }
  // Writes a file, replacing one of the same name, and returns its path.
  std::string Write(std::string_view name, std::string_view content) const;
  void Remove(std::string_view name) const;

 private:
  std::string path_;
};

}  // namespace tlm

#endif  // TLM_TESTS_FUZZ_SCRATCH_DIR_H_
