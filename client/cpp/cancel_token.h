// Cancels calls from another thread.
#ifndef TLM_CLIENT_CPP_CANCEL_TOKEN_H_
#define TLM_CLIENT_CPP_CANCEL_TOKEN_H_

#include <grpcpp/client_context.h>

#include <functional>
#include <list>
#include <mutex>
#include <optional>

#include "absl/time/time.h"

namespace tlm::client {

// Cancel ends all calls that the token was passed to with CANCELLED, including calls that start
// later. The token must outlive these calls. Thread-safe, but not for signal handlers: wait for the
// signal in a thread and call Cancel there.
class CancelToken {
 public:
  // Calls `on_cancel` when a token (may be null) is cancelled, or at once if it is already. The
  // destructor waits for a running `on_cancel`.
  class Registration {
   public:
    // `on_cancel` must be short and must not use the token.
    Registration(CancelToken* token, std::function<void()> on_cancel);
    // Cancels a call. The context must outlive the registration.
    Registration(CancelToken* token, grpc::ClientContext* context);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    CancelToken* const token_;
    std::list<std::function<void()>>::iterator place_;
  };

  CancelToken() = default;
  // Creates a token that is cancelled together with `parent`, which may be null and must outlive
  // it.
  explicit CancelToken(CancelToken* parent);
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;

  void Cancel();
  bool cancelled() const;

  // Returns after `timeout` or when the token is cancelled; true if it is. Meanwhile gRPC works on
  // connections, which it does only while a thread waits inside it.
  bool WaitFor(absl::Duration timeout);

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;                      // guarded by mutex_
  std::list<std::function<void()>> on_cancel_;  // guarded by mutex_
  std::optional<Registration> parent_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CANCEL_TOKEN_H_
