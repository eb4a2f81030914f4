// Authenticates calls by the API keys and certificates of a key file.
#ifndef TLM_SERVER_AUTH_KEY_FILE_AUTHENTICATOR_H_
#define TLM_SERVER_AUTH_KEY_FILE_AUTHENTICATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "model/base/clock.h"
#include "model/base/mutex.h"
#include "server/auth/authenticator.h"
#include "server/auth/watched_file.h"

namespace tlm {

// A call with the metadata `authorization` is authenticated by that alone: exactly one value,
// "Bearer KEY". A call without it is authenticated by its certificate: by the first of subject,
// URIs, DNS names and common name that the file has. Every call uses the current file, so removing
// an entry also affects open connections. Thread-safe.
class KeyFileAuthenticator final : public Authenticator {
 public:
  // Loads the file of --api_keys. Errors name the file and the fault: it cannot be read, is not a
  // key file, or is world-writable. `clock` outlives this object.
  static absl::StatusOr<std::unique_ptr<KeyFileAuthenticator>> Load(const std::string& path,
                                                                    Clock& clock);
  ~KeyFileAuthenticator() override;

  absl::StatusOr<Principal> Authenticate(const CallCredentials& credentials,
                                         Role role) const override;
  // Checks whether the file has changed; cheap if it has not. True: the new content is in effect.
  // Returns an error, at every call until the file is correct, when the content is invalid; the
  // previous content then stays in effect. Called by one thread at a time.
  absl::StatusOr<bool> Reload();
  // Returns the number of keys that are valid now.
  int64_t CountAccepted() const;

 private:
  class Index;

  KeyFileAuthenticator(const std::string& path, Clock& clock);
  std::shared_ptr<const Index> Current() const;

  Clock& clock_;
  WatchedFile file_;                 // used by the reloading thread, like the next two
  std::optional<std::string> text_;  // the last content read; nullopt: must be parsed again
  absl::Status fault_;               // why that content is not in effect
  mutable Mutex mutex_;
  // Shared with calls that were being authenticated when it was replaced.
  std::shared_ptr<const Index> index_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEY_FILE_AUTHENTICATOR_H_
