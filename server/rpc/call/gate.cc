#include "server/rpc/call/gate.h"

#include "absl/time/time.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

// Loading takes seconds to minutes; another replica may serve now.
constexpr absl::Duration kRetryAfter = absl::Seconds(1);

}  // namespace

absl::Status StartingStatus() {
  return WithRetryAfter(
      WithReason(Unavailable("the server is starting: its model is being loaded"), "STARTING"),
      kRetryAfter);
}

}  // namespace tlm
