#include "server/config/security_file.h"

namespace tlm {
namespace {

constexpr char kNone[] = "none";

}  // namespace

bool AbslParseFlag(absl::string_view text, SecurityFile* file, std::string* error) {
  if (text.empty()) {
    *error = "it names no file; leave the flag out, or say none, if there is to be none";
    return false;
  }
  file->path = text == kNone ? std::string() : std::string(text);
  return true;
}

std::string AbslUnparseFlag(const SecurityFile& file) {
  return file.path.empty() ? kNone : file.path;
}

}  // namespace tlm
