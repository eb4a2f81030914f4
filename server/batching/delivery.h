// Calls handlers whose token streams have new results, and other readers, on a thread of its own,
// so that no handler's work delays the engine.
#ifndef TLM_SERVER_BATCHING_DELIVERY_H_
#define TLM_SERVER_BATCHING_DELIVERY_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "model/base/mutex.h"
#include "server/batching/token_stream.h"

namespace tlm {

// Thread-safe. Calls OnStreamReady of one listener after the other, without locks held. A pending
// call covers everything that its stream receives before it, so there are never more calls due than
// streams.
class Delivery {
 public:
  // Starts the thread.
  Delivery();
  // Stop()s.
  ~Delivery();
  Delivery(const Delivery&) = delete;
  Delivery& operator=(const Delivery&) = delete;

  void Notify(std::vector<std::shared_ptr<TokenStream>> streams);
  // Calls `function` on the thread, after the listeners that are due. It must not block.
  void Call(std::function<void()> function);
  // Makes the calls that are due, then joins the thread. Call once, not from a listener; nothing
  // may be notified afterwards.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar due_or_stopping_;
  // No duplicates. Shared: a handler may release its stream before the call.
  std::vector<std::shared_ptr<TokenStream>> due_ TLM_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> functions_ TLM_GUARDED_BY(mutex_);
  bool stopping_ TLM_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace tlm

#endif  // TLM_SERVER_BATCHING_DELIVERY_H_
