// What is read again while the server runs.
#ifndef TLM_SERVER_AUTH_RELOADABLE_H_
#define TLM_SERVER_AUTH_RELOADABLE_H_

#include "absl/status/statusor.h"

namespace tlm {

// Thread-safe, but Reload is called by one thread at a time.
class Reloadable {
 public:
  virtual ~Reloadable() = default;
  // Looks whether files have changed, which costs next to nothing when they have not. True: what
  // they hold now is in effect. An error, again at every call until it is mended: what they hold
  // now cannot be used, and what was in effect stays.
  virtual absl::StatusOr<bool> Reload() = 0;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_RELOADABLE_H_
