#include "server/batching/delivery.h"

#include <iterator>
#include <utility>

#include "model/base/thread_name.h"

namespace tlm {

Delivery::Delivery() : thread_([this] { Run(); }) {}

Delivery::~Delivery() { Stop(); }

void Delivery::Notify(std::vector<std::shared_ptr<TokenStream>> streams) {
  std::erase_if(streams, [](const auto& stream) { return !stream->MarkDue(); });
  if (streams.empty()) return;
  {
    MutexLock lock(&mutex_);
    if (due_.empty()) {
      due_ = std::move(streams);
    } else {
      due_.insert(due_.end(), std::make_move_iterator(streams.begin()),
                  std::make_move_iterator(streams.end()));
    }
  }
  // Notifies without the lock, so that the woken thread need not wait for it.
  due_or_stopping_.NotifyOne();
}

void Delivery::Call(std::function<void()> function) {
  {
    MutexLock lock(&mutex_);
    functions_.push_back(std::move(function));
  }
  due_or_stopping_.NotifyOne();
}

void Delivery::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  due_or_stopping_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void Delivery::Run() {
  NameThisThread("delivery");
  for (;;) {
    std::vector<std::shared_ptr<TokenStream>> now_due;
    std::vector<std::function<void()>> functions;
    {
      MutexLock lock(&mutex_);
      while (due_.empty() && functions_.empty() && !stopping_) due_or_stopping_.Wait(&mutex_);
      if (due_.empty() && functions_.empty()) return;
      now_due = std::exchange(due_, {});
      functions = std::exchange(functions_, {});
    }
    for (const auto& stream : now_due) {
      stream->ClearDue();
      if (const auto listener = stream->listener()) listener->OnStreamReady();
    }
    for (const auto& function : functions) function();
  }
}

}  // namespace tlm
