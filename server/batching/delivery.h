// Tells handlers that their token streams have new results, and readers of other things of theirs,
// on a thread of its own, so that no handler's work delays the engine.
#ifndef TLM_SERVER_BATCHING_DELIVERY_H_
#define TLM_SERVER_BATCHING_DELIVERY_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "model/base/mutex.h"
#include "server/batching/token_stream.h"

namespace tlm {

// Thread-safe. Calls OnStreamReady of one listener after the other, without locks held. What
// arrives for a stream while its call is still to come is covered by that call, so no more calls
// are ever due than streams live.
class Delivery {
 public:
  // Starts the thread.
  Delivery();
  // Stop()s.
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  void Notify(std::vector<std::shared_ptr<TokenStream>> streams);
  // Calls `function` on the thread, behind the listeners that are due. It must not block.
  void Call(std::function<void()> function);
  // Makes the calls that are due, then joins the thread. Once; nothing may be notified afterwards.
  // Not to be called by a listener.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar due_or_stopping_;
  // Each once. Shared: a handler may let its stream go before the call.
  std::vector<std::shared_ptr<TokenStream>> due_ TLM_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> functions_ TLM_GUARDED_BY(mutex_);
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: uses the others
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_DELIVERY_H_
