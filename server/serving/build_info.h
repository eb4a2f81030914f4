// Reads the exact identity of the program.
#ifndef TLM_SERVER_SERVING_BUILD_INFO_H_
#define TLM_SERVER_SERVING_BUILD_INFO_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tlm {

// The parts of the program, besides model and device, that decide the computed numbers. They are
// equal for two processes that run builds of one commit on the same distribution and the same kind
// of processor.
struct BuildInfo {
  // A hash of the sources, the compiler and its flags, 40 hexadecimal digits. It is equal for two
  // builds of a commit, wherever their files are and whatever else is built
  // (.cmake/TlmIdentity.cmake).
  std::string build_id;
  // Names and build ids of the shared libraries that compute numbers (the GPU's too if the backend
  // is a GPU) or tokenize text. Other libraries (gRPC, protobuf, OpenSSL, the C library) may be
  // replaced without changing any token. The CUDA module's id is a hash like `build_id`; the others
  // have the linker's.
  std::string libraries;
  // A hash of results of exp, log, pow, sin and cos: the math library selects their implementation
  // by the processor's features.
  std::string math;
};

// `backend`: "cpu" or "cuda", already open. FAILED_PRECONDITION when the program has no build id
// (tlm_identify adds it); INTERNAL if libcrypto fails.
absl::StatusOr<BuildInfo> ReadBuildInfo(std::string_view backend);

// Reads only build_id; FAILED_PRECONDITION as above.
absl::StatusOr<std::string> ReadBuildId();

}  // namespace tlm

#endif  // TLM_SERVER_SERVING_BUILD_INFO_H_
