#include "server/rpc/admin/admin_flush_call.h"

#include <spdlog/spdlog.h>

#include <memory>
#include <utility>

#include "model/base/mutex.h"

namespace tlm {
namespace {

// Held by gRPC until OnDone, and by the engine until it has answered: whichever is later.
class FlushCall final : public grpc::ServerUnaryReactor,
                        public std::enable_shared_from_this<FlushCall> {
 public:
  explicit FlushCall(v1::FlushPrefixCacheResponse* response) : response_(response) {}

  void Start(Engine& engine) {
    self_ = shared_from_this();
    engine.FlushPrefixCache([call = shared_from_this()](int64_t blocks) { call->Answer(blocks); });
  }

 private:
  void Answer(int64_t blocks) {
    spdlog::info("admin FlushPrefixCache: {} blocks freed", blocks);
    {
      MutexLock lock(&mutex_);
      if (std::exchange(finished_, true)) return;
      response_->set_blocks_freed(static_cast<uint64_t>(blocks));
    }
    Finish(grpc::Status::OK);
  }

  void OnCancel() override {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(finished_, true)) return;
    }
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the client cancelled the call"));
  }

  void OnDone() override { const std::shared_ptr<FlushCall> last = std::move(self_); }

  v1::FlushPrefixCacheResponse* const response_;  // not used once finished_
  // Shared with itself until OnDone: gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<FlushCall> self_;
  Mutex mutex_;
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* StartFlushPrefixCache(Engine& engine,
                                                v1::FlushPrefixCacheResponse* response) {
  const auto call = std::make_shared<FlushCall>(response);
  call->Start(engine);
  return call.get();
}

}  // namespace tlm
