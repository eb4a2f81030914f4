#include "server/batching/delivery.h"

#include <utility>

namespace tlm {

Delivery::Delivery() : thread_([this] { Run(); }) {}

Delivery::~Delivery() { Stop(); }

void Delivery::Notify(const std::vector<std::shared_ptr<TokenStream>>& streams) {
  if (streams.empty()) return;
  MutexLock lock(&mutex_);
  due_.insert(streams.begin(), streams.end());
  due_or_stopping_.NotifyOne();
}

void Delivery::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    due_or_stopping_.NotifyOne();
  }
  if (thread_.joinable()) thread_.join();
}

void Delivery::Run() {
  for (;;) {
    std::unordered_set<std::shared_ptr<TokenStream>> now_due;
    {
      MutexLock lock(&mutex_);
      while (due_.empty() && !stopping_) due_or_stopping_.Wait(&mutex_);
      if (due_.empty()) return;
      now_due = std::exchange(due_, {});
    }
    for (const auto& stream : now_due) {
      if (const auto listener = stream->listener()) listener->OnStreamReady();
    }
  }
}

}  // namespace tlm
