// Which program this is, down to the bit.
#ifndef TLM_SERVER_SERVING_BUILD_INFO_H_
#define TLM_SERVER_SERVING_BUILD_INFO_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// What decides, beside model and device, which numbers the program computes. Equal for two
// processes that run the same file on the same distribution and the same kind of processor.
struct BuildInfo {
  // The hash of the linked file, hexadecimal: compiler, flags and sources, and libraries as far as
  // they are linked statically. Not what the loader adds: that is `libraries`.
  std::string build_id;
  // Names and build ids of the loaded libraries that compute numbers, on a GPU when that is the
  // backend, or cut text into tokens; none of them when all are linked statically. Others (gRPC,
  // protobuf, OpenSSL, the C library) may be replaced without a change of any token.
  std::string libraries;
  // A hash of what exp, log, pow, sin and cos answer: the math library chooses among several
  // versions of them by what the processor can do.
  std::string math;
};

// `backend`: "cpu" or "cuda", open already. FAILED_PRECONDITION when the program carries no build
// id; INTERNAL if libcrypto refuses.
absl::StatusOr<BuildInfo> ReadBuildInfo(std::string_view backend);

// build_id alone; FAILED_PRECONDITION as above.
absl::StatusOr<std::string> ReadBuildId();

}  // namespace tlm

#endif  // TLM_SERVER_SERVING_BUILD_INFO_H_
