// Changes a key file, safely for a server that reads it and for concurrent changes.
#ifndef TLM_SERVER_AUTH_KEY_STORE_H_
#define TLM_SERVER_AUTH_KEY_STORE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/key_file.h"

namespace tlm {

// One change of one file: Open, change file(), Save. Other calls of Open wait until this object is
// destroyed. Not thread-safe.
class KeyStore {
 public:
  enum class Missing { kError, kEmpty };

  // Errors name the file: it cannot be read, or is not a key file. A missing file is NOT_FOUND or,
  // with kEmpty, counts as a file without entries.
  static absl::StatusOr<std::unique_ptr<KeyStore>> Open(const std::string& path, Missing missing);
  ~KeyStore();
  KeyStore(const KeyStore&) = delete;
  KeyStore& operator=(const KeyStore&) = delete;

  KeyFile& file() { return file_; }

  // Replaces the file atomically. Mode and owner stay the same; only the owner may read a newly
  // made file. A symbolic link stays a link. FAILED_PRECONDITION names what cannot be written; the
  // file is then unchanged. `before_replacing` is called after the new file is written and before
  // the replacement: its error also leaves the file unchanged.
  absl::Status Save(absl::FunctionRef<absl::Status()> before_replacing = [] {
    return absl::OkStatus();
  });

 private:
  KeyStore(std::string path, int directory) : path_(std::move(path)), directory_(directory) {}
  // Removes unfinished new files. Requires the lock: then no running process owns them.
  void RemoveAbandonedDrafts() const;

  const std::string path_;  // with links resolved
  const int directory_;     // open and locked
  bool exists_ = false;
  KeyFile file_;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEY_STORE_H_
