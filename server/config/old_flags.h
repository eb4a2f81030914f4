// Flags of the version before this one, which still work for one version. They stand in neither the
// help nor the manual page; each one that is given is named in the log with what replaces it.
#ifndef TLM_SERVER_CONFIG_OLD_FLAGS_H_
#define TLM_SERVER_CONFIG_OLD_FLAGS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "server/config/options.h"

namespace tlm {

// What --init, --seed and --weights_dtype say, in the form of --random_weights; empty: nothing.
absl::StatusOr<std::string> OldRandomWeights(ServerOptions* options);
// The others, on top of what the flags of today say. Values are checked as those are.
absl::Status ApplyOldFlags(ServerOptions* options);

}  // namespace tlm

#endif  // TLM_SERVER_CONFIG_OLD_FLAGS_H_
