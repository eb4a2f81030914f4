#include "server/rpc/facades/vllm/vllm_facade.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "model/base/errors.h"
#include "server/rpc/call/answer_call.h"
#include "server/rpc/convert/field_error.h"
#include "server/rpc/facades/vllm/kv_event_stream.h"
#include "server/rpc/facades/vllm/vllm_describe.h"
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
