#include "model/base/descriptor.h"

#include <fcntl.h>
#include <sys/syscall.h>

namespace tlm {

// Sanitizers are not initialised yet either: they must not instrument this, and none of their
// functions may be called.
__attribute__((no_sanitize("address", "thread", "undefined"))) void OpenStandardDescriptors() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (syscall(SYS_fcntl, number, F_GETFD) >= 0) continue;
    // The new file gets this number: the lower ones are open.
    syscall(SYS_openat, AT_FDCWD, "/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace tlm
