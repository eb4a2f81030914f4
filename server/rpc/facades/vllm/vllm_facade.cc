#include "server/rpc/facades/vllm/vllm_facade.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/base/errors.h"
#include "model/ops/ops.h"
#include "model/tensor/dtype.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/vllm/kv_event_stream.h"
#include "server/rpc/facades/vllm/vllm_generate.h"
#include "server/rpc/generate/generate_call.h"

namespace tlm {
namespace {

// Streams the archive; lives until gRPC is done with it.
class TokenizerStream final
    : public grpc::ServerWriteReactor<::smg::grpc::common::GetTokenizerChunk> {
 public:
  explicit TokenizerStream(std::shared_ptr<const TokenizerArchive> archive)
      : archive_(std::move(archive)) {
    WriteNext();
  }
  explicit TokenizerStream(const absl::Status& status) { Finish(ToGrpcStatus(status)); }

  void OnWriteDone(bool ok) override {
    if (ok && sent_ < archive_->zip.size()) return WriteNext();
    Finish(ok ? grpc::Status::OK : grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  static constexpr size_t kChunkBytes = size_t{64} << 10;

  void WriteNext() {
    const size_t bytes = std::min(kChunkBytes, archive_->zip.size() - sent_);
    chunk_.set_data(archive_->zip.data() + sent_, bytes);
    sent_ += bytes;
    if (sent_ == archive_->zip.size()) chunk_.set_sha256(archive_->sha256);
    StartWrite(&chunk_);
  }

  std::shared_ptr<const TokenizerArchive> archive_;
  size_t sent_ = 0;
  ::smg::grpc::common::GetTokenizerChunk chunk_;
};

int32_t I32(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max()));
}

double Quotient(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string DefaultsJson(const SamplingParams& defaults) {
  nlohmann::ordered_json json;
  json["temperature"] = defaults.temperature;
  json["top_p"] = defaults.top_p;
  json["top_k"] = defaults.top_k;
  json["min_p"] = defaults.min_p;
  json["repetition_penalty"] = defaults.repetition_penalty;
  return json.dump();
}

// Returns the type of most bytes of the weights.
const char* WeightsType(const ServedMemory& memory) {
  const auto largest =
      std::max_element(memory.weights.begin(), memory.weights.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return largest == memory.weights.end() ? "" : DTypeName(largest->first);
}

// Describe model and load for vllm.grpc.engine.VllmEngine.
void FillVllmModelInfo(const ServedModel& model,
                       ::vllm::grpc::engine::GetModelInfoResponse& response) {
  const std::string path = "/tlm:" + model.model_id;
  response.set_model_path(path);
  response.set_tokenizer_path(path);
  response.set_is_generation(true);
  response.set_max_context_length(static_cast<uint32_t>(model.limits.max_context_tokens));
  response.set_max_req_input_len(I32(model.limits.max_prompt_tokens()));
  response.set_vocab_size(static_cast<uint32_t>(model.config.vocab_size));
  response.set_served_model_name(model.model_id);
  response.set_model_type(model.config.model_type);
  response.add_architectures(model.config.architecture);
  for (const int64_t id : model.config.eos_token_ids) response.add_eos_token_ids(I32(id));
  response.set_bos_token_id(I32(model.config.bos_token_id.value_or(0)));
  response.set_default_sampling_params_json(DefaultsJson(model.default_sampling));
}

// `uptime`: the server's.
void FillVllmServerInfo(const ServedModel& model, const EngineStats& stats, absl::Duration uptime,
                        ::vllm::grpc::engine::GetServerInfoResponse& response) {
  response.set_active_requests(
      static_cast<uint32_t>(stats.running_requests + stats.waiting_requests));
  response.set_uptime_seconds(absl::ToDoubleSeconds(uptime));
  response.set_server_type("vllm-grpc");
  response.set_data_parallel_size(1);
  response.set_kv_cache_dtype(KvDTypeName(model.memory.kv_dtype));
  response.set_block_size(kBlockTokens);
  response.set_model_dtype(WeightsType(model.memory));
  response.set_max_num_seqs(I32(model.limits.engine.max_running_requests));
}

// `now` is the wall clock's time.
void FillVllmLoads(const ServedModel& model, const EngineStats& stats, absl::Time now,
                   ::vllm::grpc::engine::GetLoadsResponse& response) {
  response.set_timestamp(absl::FormatTime(absl::RFC3339_sec, now, absl::UTCTimeZone()));
  response.set_version(model.server_version);
  response.set_dp_rank_count(1);
  ::vllm::grpc::engine::SchedulerLoad& load = *response.add_loads();
  const int64_t most = model.limits.engine.max_running_requests;
  load.set_num_running_reqs(I32(stats.running_requests));
  load.set_num_waiting_reqs(I32(stats.waiting_requests));
  load.set_num_total_reqs(I32(stats.running_requests + stats.waiting_requests));
  load.set_num_used_tokens(I32(stats.kv_blocks_used * kBlockTokens));
  load.set_max_total_num_tokens(I32(stats.kv_blocks_total * kBlockTokens));
  load.set_token_usage(Quotient(stats.kv_blocks_used, stats.kv_blocks_total));
  load.set_gen_throughput(stats.decode_tokens_per_second);
  load.set_cache_hit_rate(
      Quotient(stats.prefix_cache.hit_tokens, stats.prefix_cache.queried_tokens));
  load.set_utilization(Quotient(std::min(stats.running_requests, most), most));
  load.set_max_running_requests(I32(most));
  load.set_num_waiting_uncached_tokens(I32(stats.waiting_tokens));
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* VllmFacade::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartGenerateStream({"vllm.Generate"}, context, *request, services(), gate(),
                             std::make_unique<VllmGenerateMapping>());
}

grpc::ServerUnaryReactor* VllmFacade::Embed(grpc::CallbackServerContext* context,
                                            const ::vllm::grpc::engine::EmbedRequest* /*request*/,
                                            ::vllm::grpc::engine::EmbedResponse* /*response*/) {
  return AnswerCall("vllm.Embed", context, services(), gate(),
                    [](const RpcContext&, const Principal&) {
                      return Unimplemented("this server does not support embeddings");
                    });
}

grpc::ServerUnaryReactor* VllmFacade::HealthCheck(
    grpc::CallbackServerContext* context,
    const ::vllm::grpc::engine::HealthCheckRequest* /*request*/,
    ::vllm::grpc::engine::HealthCheckResponse* response) {
  response->set_healthy(serving());
  response->set_message(serving() ? "serving" : "not serving");
  return AnswerProbe(context);
}

grpc::ServerUnaryReactor* VllmFacade::Abort(grpc::CallbackServerContext* context,
                                            const ::vllm::grpc::engine::AbortRequest* request,
                                            ::vllm::grpc::engine::AbortResponse* /*response*/) {
  return AnswerCall("vllm.Abort", context, services(), gate(),
                    [request](const RpcContext& rpc, const Principal& caller) {
                      return AbortOwnCalls(rpc, caller, request->request_ids()).status();
                    });
}

grpc::ServerUnaryReactor* VllmFacade::GetModelInfo(
    grpc::CallbackServerContext* context,
    const ::vllm::grpc::engine::GetModelInfoRequest* /*request*/,
    ::vllm::grpc::engine::GetModelInfoResponse* response) {
  return AnswerCall("vllm.GetModelInfo", context, services(), gate(),
                    [response](const RpcContext& rpc, const Principal&) {
                      FillVllmModelInfo(rpc.model, *response);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* VllmFacade::GetServerInfo(
    grpc::CallbackServerContext* context,
    const ::vllm::grpc::engine::GetServerInfoRequest* /*request*/,
    ::vllm::grpc::engine::GetServerInfoResponse* response) {
  return AnswerCall("vllm.GetServerInfo", context, services(), gate(),
                    [this, response](const RpcContext& rpc, const Principal&) {
                      FillVllmServerInfo(rpc.model, rpc.engine.Stats(), rpc.clock.Now() - begin_,
                                         *response);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* VllmFacade::GetLoads(grpc::CallbackServerContext* context,
                                               const ::vllm::grpc::engine::GetLoadsRequest* request,
                                               ::vllm::grpc::engine::GetLoadsResponse* response) {
  return AnswerCall("vllm.GetLoads", context, services(), gate(),
                    [request, response](const RpcContext& rpc, const Principal&) -> absl::Status {
                      TLM_RETURN_IF_ERROR(CheckRange("dp_rank", request->dp_rank(), 0, 0));
                      FillVllmLoads(rpc.model, rpc.engine.Stats(), Clock::Wall()->Now(), *response);
                      return absl::OkStatus();
                    });
}

grpc::ServerWriteReactor<::smg::grpc::common::GetTokenizerChunk>* VllmFacade::GetTokenizer(
    grpc::CallbackServerContext* context,
    const ::smg::grpc::common::GetTokenizerRequest* /*request*/) {
  std::shared_ptr<const TokenizerArchive> archive;
  const CallRecord record =
      AnsweredCall("vllm.GetTokenizer", *context, services(), gate(),
                   [&](const RpcContext& rpc, const Principal&) -> absl::Status {
                     TLM_ASSIGN_OR_RETURN(archive, archives_.Get(rpc.model));
                     return absl::OkStatus();
                   });
  EndCall(record);
  if (!record.status.ok()) return new TokenizerStream(record.status);
  return new TokenizerStream(std::move(archive));
}

grpc::ServerWriteReactor<::smg::grpc::common::KvEventBatch>* VllmFacade::SubscribeKvEvents(
    grpc::CallbackServerContext* context,
    const ::smg::grpc::common::SubscribeKvEventsRequest* request) {
  return StartKvEventStream(context, *request, services(), gate());
}

}  // namespace tlm
