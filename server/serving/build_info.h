// The exact identity of the program.
#ifndef TLM_SERVER_SERVING_BUILD_INFO_H_
#define TLM_SERVER_SERVING_BUILD_INFO_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// The parts of the program that decide the computed numbers, beside model and device. Equal for two
// processes that run the same file on the same distribution and the same kind of processor.
struct BuildInfo {
  // The hash of the linked file, hexadecimal: compiler, flags, sources, and statically linked
  // libraries. Shared libraries are in `libraries`.
  std::string build_id;
  // Names and build ids of the shared libraries that compute numbers (on a GPU, if that is the
  // backend) or tokenize text. Others (gRPC, protobuf, OpenSSL, the C library) may be replaced
  // without changing any token.
  std::string libraries;
  // A hash of results of exp, log, pow, sin and cos: the math library selects their implementation
  // by the processor's features.
  std::string math;
};

// `backend`: "cpu" or "cuda", already open. FAILED_PRECONDITION when the program has no build
// id; INTERNAL if libcrypto refuses.
absl::StatusOr<BuildInfo> ReadBuildInfo(std::string_view backend);

// build_id alone; FAILED_PRECONDITION as above.
absl::StatusOr<std::string> ReadBuildId();

}  // namespace tlm

#endif  // TLM_SERVER_SERVING_BUILD_INFO_H_
