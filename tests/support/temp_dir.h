// Files for the duration of a test.
#ifndef TLM_TESTS_SUPPORT_TEMP_DIR_H_
#define TLM_TESTS_SUPPORT_TEMP_DIR_H_

#include <string>
#include <string_view>

namespace tlm {

// A fresh directory, removed with its content when the object is destroyed. Throws when the system
// refuses.
class TempDir {
 public:
  // Creates it in the system's directory for temporary files, or in `parent`.
  TempDir();
  explicit TempDir(const std::string& parent);
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }
  // Writes a file, replaces one of the same name, and returns its path.
  std::string Write(std::string_view name, std::string_view content) const;

 private:
  std::string path_;
};

}  // namespace tlm

#endif  // TLM_TESTS_SUPPORT_TEMP_DIR_H_
