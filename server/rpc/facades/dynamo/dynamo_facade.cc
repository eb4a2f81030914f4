#include "server/rpc/facades/dynamo/dynamo_facade.h"

#include <fmt/format.h>

#include <memory>

#include "model/ops/ops.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/facades/dynamo/inference_mapping.h"
#include "server/rpc/generate/generate_call.h"

namespace tlm {
namespace {

// Returns the rank, in a group of servers, that is to compute a request.
std::string DataParallelRank(const grpc::CallbackServerContext& context) {
  const auto rank = context.client_metadata().find("x-data-parallel-rank");
  if (rank == context.client_metadata().end()) return "";
  return std::string(rank->second.data(), rank->second.size());
}

void FillParallelism(vllm::ParallelismInfo& parallelism) {
  parallelism.set_tensor_parallel_size(1);
  parallelism.set_pipeline_parallel_size(1);
  parallelism.set_data_parallel_size(1);
  parallelism.set_decode_context_parallel_size(1);
  parallelism.set_world_size(1);
  parallelism.set_data_parallel_size_local(1);
}

void FillServer(const ServedModel& model, vllm::ServerInfo& server) {
  const EngineOptions& engine = model.limits.engine;
  server.set_engine_version(model.server_version);
  server.set_api_version("vllm");
  FillParallelism(*server.mutable_parallelism());
  server.set_max_model_len(static_cast<uint32_t>(model.limits.max_context_tokens));
  server.set_kv_block_size(kBlockTokens);
  server.set_effective_attention_block_size(kBlockTokens);
  server.set_total_kv_blocks(model.memory.kv_blocks);
  server.set_max_running_requests(static_cast<uint64_t>(engine.max_running_requests));
  server.set_max_batched_tokens(static_cast<uint64_t>(engine.max_batch_tokens));
}

void FillModel(const ServedModel& model, vllm::ModelInfo& info) {
  info.set_model_id(model.directory.empty() ? model.model_id : model.directory);
  info.set_served_model_name(model.model_id);
  info.set_supports_text_input(model.tokenizer != nullptr);
  info.set_supports_token_ids_input(true);
  const ChatFormat& format = model.chat_format;
  if (format.reasoning != nullptr) {
    info.set_reasoning_parser(std::string(format.reasoning->parser));
  }
  if (format.tools != nullptr) info.set_tool_call_parser(std::string(format.tools->parser));
}

void FillSource(const KvEventAddress& from, vllm::KvEventSource& source) {
  source.set_transport("zmq");
  source.set_endpoint(from.endpoint);
  source.set_topic(from.topic);
  source.set_replay_endpoint(from.replay_endpoint);
  source.set_data_parallel_rank(0);
  source.set_encoding("msgpack");
  source.set_schema_version(1);
  source.set_buffer_steps(static_cast<uint32_t>(from.replay_batches));
  source.set_hwm(static_cast<uint32_t>(from.high_water_mark));
  source.set_max_queue_size(static_cast<uint32_t>(from.high_water_mark));
}

}  // namespace

DynamoFacade::DynamoFacade(const CallServices& services, const RpcGate& gate)
    : Facade(services, gate), instance_id_(fmt::format("{:016x}", services.random())) {}

std::vector<GrpcListener::NamedService> DynamoFacade::Services() {
  return {{vllm::Inference::service_full_name(), static_cast<DynamoInferenceMethods*>(this)},
          {vllm::Control::service_full_name(), static_cast<vllm::Control::CallbackService*>(this)}};
}

grpc::ServerUnaryReactor* DynamoFacade::Generate(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer* request,
                                                 grpc::ByteBuffer* response) {
  return StartGenerateUnary({"dynamo.Generate"}, context, *request, response, services(), gate(),
                            std::make_unique<InferenceMapping>(InferenceMapping::Answer::kUnary,
                                                               DataParallelRank(*context)));
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* DynamoFacade::GenerateStream(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return StartGenerateStream({"dynamo.GenerateStream"}, context, *request, services(), gate(),
                             std::make_unique<InferenceMapping>(InferenceMapping::Answer::kStream,
                                                                DataParallelRank(*context)));
}

grpc::ServerUnaryReactor* DynamoFacade::GetServerInfo(grpc::CallbackServerContext* context,
                                                      const vllm::GetServerInfoRequest* /*request*/,
                                                      vllm::ServerInfo* response) {
  return AnswerCall("dynamo.GetServerInfo", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      FillServer(rpc.model, *response);
                      response->set_instance_id(instance_id_);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* DynamoFacade::GetModelInfo(grpc::CallbackServerContext* context,
                                                     const vllm::GetModelInfoRequest* /*request*/,
                                                     vllm::ModelInfo* response) {
  return AnswerCall("dynamo.GetModelInfo", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      FillModel(rpc.model, *response);
                      return absl::OkStatus();
                    });
}

grpc::ServerUnaryReactor* DynamoFacade::Abort(grpc::CallbackServerContext* context,
                                              const vllm::AbortRequest* request,
                                              vllm::AbortResponse* /*response*/) {
  return AnswerCall("dynamo.Abort", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& caller) {
                      return AbortOwnCalls(rpc, caller, request->request_ids()).status();
                    });
}

grpc::ServerUnaryReactor* DynamoFacade::GetKvEventSources(
    grpc::CallbackServerContext* context, const vllm::GetKvEventSourcesRequest* /*request*/,
    vllm::GetKvEventSourcesResponse* response) {
  return AnswerCall("dynamo.GetKvEventSources", context, services(), gate(),
                    [&](const RpcContext& rpc, const Principal& /*caller*/) {
                      if (rpc.model.kv_events.has_value()) {
                        FillSource(*rpc.model.kv_events, *response->add_sources());
                      }
                      return absl::OkStatus();
                    });
}

}  // namespace tlm
