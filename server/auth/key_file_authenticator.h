// API keys and certificates by a key file.
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

// A call that shows `authorization` is judged by that alone: exactly one value, "Bearer KEY". One
// without is judged by its certificate: the first of subject, URIs, DNS names and common name that
// the file has. Every question is answered by the file as it is in effect then, so that a key ends
// with its entry, on open connections too. Thread-safe.
class KeyFileAuthenticator final : public Authenticator {
 public:
  // The file of --api_keys. Errors name the file and the fault: it cannot be read, is no key file,
  // or is world-writable. `clock` outlives the object.
  static absl::StatusOr<std::unique_ptr<KeyFileAuthenticator>> Load(const std::string& path,
                                                                    Clock& clock);
  ~KeyFileAuthenticator() override;

  absl::StatusOr<Principal> Authenticate(const CallCredentials& credentials,
                                         Role role) const override;
  // Looks whether the file has changed, which costs next to nothing when it has not. True: what it
  // holds now is in effect. An error, at every call until the file is correct: what it holds now
  // cannot be used, and what was in effect stays. One thread at a time.
  absl::StatusOr<bool> Reload();
  // Keys that would be accepted now.
  int64_t CountAccepted() const;

 private:
  class Index;

  KeyFileAuthenticator(const std::string& path, Clock& clock);
  std::shared_ptr<const Index> Current() const;

  Clock& clock_;
  WatchedFile file_;                 // of the thread that reloads, as the next two
  std::optional<std::string> text_;  // what was read last; nullopt: it has to be looked at again
  absl::Status fault_;               // why that is not in effect
  mutable Mutex mutex_;
  // Shared with the calls that were asking when it was replaced.
  std::shared_ptr<const Index> index_ TLM_GUARDED_BY(mutex_);
};

}  // namespace tlm

#endif  // TLM_SERVER_AUTH_KEY_FILE_AUTHENTICATOR_H_
