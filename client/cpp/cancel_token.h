// Cancels calls from another thread.
#ifndef TLM_CLIENT_CPP_CANCEL_TOKEN_H_
#define TLM_CLIENT_CPP_CANCEL_TOKEN_H_

#include <grpcpp/client_context.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "absl/time/time.h"

namespace tlm::client {

// Given to any number of calls, it ends all of them with CANCELLED once Cancel is called, the ones
// that start later too. Must outlive the calls it was given to. Thread-safe, but not for signal
// handlers: wait for the signal in a thread and call Cancel there.
class CancelToken {
 public:
  CancelToken() = default;
  CancelToken(const CancelToken&) = delete;
  CancelToken& operator=(const CancelToken&) = delete;

  void Cancel();
  bool cancelled() const;

  // Returns after `timeout`, or as soon as the token is cancelled; true if it is.
  bool WaitFor(absl::Duration timeout) const;

  // Ties a call to a token (none if null) for the life of this object, which must end before the
  // context's does.
  class Registration {
   public:
    Registration(CancelToken* token, grpc::ClientContext* context);
    ~Registration();
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;

   private:
    CancelToken* const token_;
    grpc::ClientContext* const context_;
  };

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool cancelled_ = false;                   // guarded by mutex_
  std::set<grpc::ClientContext*> contexts_;  // guarded by mutex_
};

}  // namespace tlm::client

#endif  // TLM_CLIENT_CPP_CANCEL_TOKEN_H_
