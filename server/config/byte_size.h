// Sizes on the command line: "512MiB".
#ifndef TLM_SERVER_CONFIG_BYTE_SIZE_H_
#define TLM_SERVER_CONFIG_BYTE_SIZE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace tlm {

// A flag type. Text is a whole number with an optional unit: KiB, MiB, GiB, TiB (powers of 1024) or
// kB, MB, GB, TB (powers of 1000), upper or lower case; none = bytes.
struct ByteSize {
  int64_t bytes = 0;
};

bool AbslParseFlag(absl::string_view text, ByteSize* size, std::string* error);
std::string AbslUnparseFlag(ByteSize size);

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_BYTE_SIZE_H_
