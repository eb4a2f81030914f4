#include "server/rpc/admin/admin_handlers.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "model/base/errors.h"
#include "model/base/mutex.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/convert/proto_time.h"

namespace tlm {
namespace {

uint64_t U64(int64_t value) { return static_cast<uint64_t>(value); }

void FillPrefixCache(const PrefixCacheStats& from, v1::PrefixCacheLoad& cache) {
  cache.set_queried_tokens(U64(from.queried_tokens));
  cache.set_hit_tokens(U64(from.hit_tokens));
  cache.set_published_blocks(U64(from.published_blocks));
  cache.set_evicted_blocks(U64(from.evicted_blocks));
}

absl::Status CheckAbort(const v1::AbortRequest& request, const RequestLimits& limits) {
  TLM_RETURN_IF_ERROR(CheckCount("request_ids", request.request_ids_size(), kMaxAbortIds));
  for (int i = 0; i < request.request_ids_size(); ++i) {
    const auto bytes = static_cast<int64_t>(request.request_ids(i).size());
    if (bytes > limits.max_request_id_bytes) {
      return BadField(fmt::format("request_ids[{}]", i), "has {} bytes, the limit is {}", bytes,
                      limits.max_request_id_bytes);
    }
  }
  return absl::OkStatus();
}

// gRPC owns it until OnDone and the engine until it has answered, whichever is later.
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
  // Owns itself until OnDone, because gRPC 1.51 keeps a plain pointer.
  std::shared_ptr<FlushCall> self_;
  Mutex mutex_;
  bool finished_ TLM_GUARDED_BY(mutex_) = false;
};

}  // namespace

void GetLoad(const AdminContext& admin, const AdminTarget& target, v1::GetLoadResponse& response) {
  const EngineStats stats = target.engine.Stats();
  const absl::Time now = admin.clock.Now();
  response.set_queued_requests(U64(stats.waiting_requests));
  response.set_queued_tokens(U64(stats.waiting_tokens));
  response.set_running_sequences(U64(stats.running_requests));
  response.set_parked_sequences(U64(stats.parked_requests));
  response.set_kv_blocks_total(U64(stats.kv_blocks_total));
  response.set_kv_blocks_used(U64(stats.kv_blocks_used));
  response.set_kv_blocks_cached(U64(stats.kv_blocks_cached));
  response.set_prefill_tokens_per_second(stats.prefill_tokens_per_second);
  response.set_decode_tokens_per_second(stats.decode_tokens_per_second);
  SetDuration(stats.estimated_queue_time, response.mutable_estimated_queue_time());
  response.set_steps(U64(stats.steps));
  SetDuration(now - stats.last_progress, response.mutable_last_step_age());
  response.set_draining(admin.shutdown.asked() || stats.draining);
  SetDuration(now - target.serving_since, response.mutable_uptime());
  response.set_active_calls(U64(target.admission.active_calls()));
  FillPrefixCache(stats.prefix_cache, *response.mutable_prefix_cache());
  response.set_preemptions(U64(stats.preemptions));
  response.set_finished_requests(U64(stats.finished_requests));
}

absl::Status AbortCalls(const v1::AbortRequest& request, const AdminTarget& target,
                        v1::AbortResponse& response) {
  TLM_RETURN_IF_ERROR(CheckAbort(request, target.limits));
  const absl::Status status =
      WithReason(Aborted("an administrator ended the call"), "ABORTED_BY_ADMIN");
  std::optional<std::string> tenant;
  if (request.has_tenant()) tenant = request.tenant();
  // A set: an id that is given twice is ended once and not reported as missing the second time.
  std::set<std::string> missing(request.request_ids().begin(), request.request_ids().end());
  std::vector<std::string> ended;
  int64_t calls = 0;
  for (const std::string& id : missing) {
    const int64_t of_this_id = target.calls.Abort(id, tenant, status);
    if (of_this_id > 0) ended.push_back(id);
    calls += of_this_id;
  }
  if (request.all()) {
    const CallRegistry::Ended rest = target.calls.AbortAll(tenant, status);
    ended.insert(ended.end(), rest.request_ids.begin(), rest.request_ids.end());
    calls += rest.calls;
  }
  for (const std::string& id : ended) missing.erase(id);
  spdlog::info("admin Abort: {} calls ended, {} names not active", calls, missing.size());
  response.set_aborted_total(U64(calls));
  ended.resize(std::min<size_t>(ended.size(), kMaxAbortIds));
  response.mutable_aborted()->Assign(ended.begin(), ended.end());
  response.mutable_not_found()->Assign(missing.begin(), missing.end());
  return absl::OkStatus();
}

absl::Status BeginDrain(const v1::DrainRequest& request, const AdminContext& admin,
                        const AdminTarget& target, v1::DrainResponse& response) {
  std::optional<absl::Duration> limit;
  if (request.has_time_limit()) {
    TLM_ASSIGN_OR_RETURN(limit, ReadDuration("time_limit", request.time_limit()));
  }
  response.set_active_requests(U64(target.admission.active_calls()));
  const bool first = admin.shutdown.Ask({.drain_limit = limit});
  response.set_already_draining(!first);
  spdlog::info("admin Drain{}", first ? "" : ": already in progress");
  return absl::OkStatus();
}

void GetConfig(const AdminContext& admin, v1::GetConfigResponse& response) {
  for (const ConfigOption& from : admin.config) {
    v1::GetConfigResponse::Option& option = *response.add_options();
    option.set_name(from.name);
    option.set_value(from.value);
    option.set_default_value(from.default_value);
  }
}

grpc::ServerUnaryReactor* StartFlushPrefixCache(Engine& engine,
                                                v1::FlushPrefixCacheResponse* response) {
  const auto call = std::make_shared<FlushCall>(response);
  call->Start(engine);
  return call.get();
}

}  // namespace tlm
