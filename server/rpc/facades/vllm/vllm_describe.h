// Model and load as vllm.grpc.engine.VllmEngine describes them.
#ifndef TLM_SERVER_RPC_FACADES_VLLM_VLLM_DESCRIBE_H_
#define TLM_SERVER_RPC_FACADES_VLLM_VLLM_DESCRIBE_H_

#include "absl/time/time.h"
#include "server/observe/engine_stats.h"
#include "server/serving/served_model.h"
#include "vllm/grpc/engine/vllm_engine.pb.h"

namespace tlm {

void FillVllmModelInfo(const ServedModel& model,
                       ::vllm::grpc::engine::GetModelInfoResponse& response);

// `uptime` is that of the server.
void FillVllmServerInfo(const ServedModel& model, const EngineStats& stats, absl::Duration uptime,
                        ::vllm::grpc::engine::GetServerInfoResponse& response);

// `now` by the wall clock.
void FillVllmLoads(const ServedModel& model, const EngineStats& stats, absl::Time now,
                   ::vllm::grpc::engine::GetLoadsResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_VLLM_VLLM_DESCRIBE_H_
