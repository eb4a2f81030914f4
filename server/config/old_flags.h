// The flags of the previous version, which still work for one version. Help and manual page omit
// them; the log names each one that is given, with its replacement.
#ifndef TLM_SERVER_CONFIG_OLD_FLAGS_H_
#define TLM_SERVER_CONFIG_OLD_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace tlm {

// Returns the values of --init, --seed and --weights_dtype as a value of --random_weights; empty if
// none of them is given.
absl::StatusOr<std::string> OldRandomWeights(ServerOptions* options);
// Applies the other old flags on top of the current flags, with the same checks.
absl::Status ApplyOldFlags(ServerOptions* options);

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_OLD_FLAGS_H_
