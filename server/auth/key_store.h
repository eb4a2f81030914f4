// Changing a key file, while a server may be reading it and others may want to change it too.
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

// One change of one file: Open, alter file(), Save. Other calls of Open wait until this object is
// destroyed. Not thread-safe.
class KeyStore {
 public:
  enum class Missing { kError, kEmpty };

  // Errors name the file: it cannot be read, or is no key file. A file that is not there is
  // NOT_FOUND, or one without entries.
  static absl::StatusOr<std::unique_ptr<KeyStore>> Open(const std::string& path, Missing missing);
  ~KeyStore();
  KeyStore(const KeyStore&) = delete;
  KeyStore& operator=(const KeyStore&) = delete;

  KeyFile& file() { return file_; }

  // Replaces the file in one step, so that readers see the old or the new one whole. Mode and owner
  // stay; a new file is its owner's alone. A symbolic link stays one. FAILED_PRECONDITION names
  // what cannot be written; then the file is as it was. `before_replacing` is called when the new
  // file has been written out and only the replacement is left to do: its error leaves the file as
  // it was, too.
  absl::Status Save(absl::FunctionRef<absl::Status()> before_replacing = [] {
    return absl::OkStatus();
  });

 private:
  KeyStore(std::string path, int directory) : path_(std::move(path)), directory_(directory) {}
  // New files that were not finished. With the lock held they have no owner that lives.
  void RemoveAbandonedDrafts() const;

  const std::string path_;  // links resolved
  const int directory_;     // open, and locked
  bool exists_ = false;
  KeyFile file_;
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEY_STORE_H_
