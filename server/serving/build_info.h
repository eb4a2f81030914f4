// The exact identity of the program.
#ifndef TLM_SERVER_SERVING_BUILD_INFO_H_
#define TLM_SERVER_SERVING_BUILD_INFO_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// The parts of the program that decide the computed numbers, beside model and device. Equal for two
// processes that run builds of one commit on the same distribution and the same kind of processor.
struct BuildInfo {
  // A hash of the sources, the compiler and its flags, 40 hexadecimal digits: equal for two builds
  // of a commit, wherever their files are and whatever else is built (.cmake/TlmIdentity.cmake).
  std::string build_id;
  // Names and build ids of the shared libraries that compute numbers (on a GPU, if that is the
  // backend) or tokenize text. Others (gRPC, protobuf, OpenSSL, the C library) may be replaced
  // without changing any token. The CUDA module's id is a hash like `build_id`; others have the
  // linker's.
  std::string libraries;
  // A hash of results of exp, log, pow, sin and cos: the math library selects their implementation
  // by the processor's features.
  std::string math;
};

// `backend`: "cpu" or "cuda", already open. FAILED_PRECONDITION when the program has no build
// id (tlm_identify puts it in); INTERNAL if libcrypto refuses.
absl::StatusOr<BuildInfo> ReadBuildInfo(std::string_view backend);

// build_id alone; FAILED_PRECONDITION as above.
absl::StatusOr<std::string> ReadBuildId();

}  // namespace tlm

#endif  // TLM_SERVER_SERVING_BUILD_INFO_H_
