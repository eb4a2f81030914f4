// The server and its model as openengine.v1.Control describes them.
#ifndef TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_MODEL_H_
#define TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_MODEL_H_

#include <string>

#include "absl/time/time.h"
#include "openengine/v1/kv.pb.h"
#include "openengine/v1/model.pb.h"
#include "openengine/v1/server.pb.h"
#include "server/observe/engine_stats.h"
#include "server/serving/served_model.h"

namespace tlm {

namespace openengine = ::openengine::v1;

// The name of tlm.v1 that `given` stands for: clients name the model by the path or the id that
// they have its tokenizer from, of which the served name is the last part.
std::string ServedNameOf(const std::string& given, const ServedModel& model);

void FillServerInfo(const ServedModel& model, openengine::ServerInfo& info);
void FillModelInfo(const ServedModel& model, openengine::ModelInfo& info);
// `now` by the system's clock.
void FillLoad(const EngineStats& stats, absl::Time now, bool per_rank, openengine::LoadInfo& load);
// The source of KV events, if there is one that other hosts can name: a socket of TCP, and not on
// every address.
void AddKvEventSource(const ServedModel& model, openengine::GetKvEventSourcesResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_MODEL_H_
