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

// Given to any number of calls, it ends all of them with CANCELLED once Cancel is called, the ones
// that start later too. Must outlive the calls it was given to. Thread-safe, but not for signal
// handlers: wait for the signal in a thread and call Cancel there.
class CancelToken {
 public:
  // Does something when a token (none if null) is cancelled, or at once if it is already; until
  // this object ends, which waits for `on_cancel` to return.
  class Registration {
   public:
    // `on_cancel` is short and does not use the token.
    Registration(CancelToken* token, std::function<void()> on_cancel);
    // Cancels a call. This ends before the context does.
    Registration(CancelToken* token, grpc::ClientContext* context);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    CancelToken* const token_;
    std::list<std::function<void()>>::iterator place_;
  };

  CancelToken() = default;
  // Is cancelled together with `parent`, which outlives it and may be null.
  explicit CancelToken(CancelToken* parent);
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;

  void Cancel();
  bool cancelled() const;

  // Returns after `timeout`, or as soon as the token is cancelled; true if it is. Meanwhile gRPC
  // works on connections, which it does only while somebody waits inside it.
  bool WaitFor(absl::Duration timeout);

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;                      // guarded by mutex_
  std::list<std::function<void()>> on_cancel_;  // guarded by mutex_
  std::optional<Registration> parent_;
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CANCEL_TOKEN_H_
