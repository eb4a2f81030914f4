// Files on the command line that keep somebody out.
#ifndef TLM_SERVER_CONFIG_SECURITY_FILE_H_
#define TLM_SERVER_CONFIG_SECURITY_FILE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tlm {

// A flag type. Text is a path, or "none", the default; never empty: `--api_keys=$KEYS` with an
// unset variable is an error, and does not let everybody in.
struct SecurityFile {
  std::string path;  // empty: none
};

bool AbslParseFlag(absl::string_view text, SecurityFile* file, std::string* error);
std::string AbslUnparseFlag(const SecurityFile& file);

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_SECURITY_FILE_H_
