// Describes the server and its model for openengine.v1.Control.
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

// Maps the name `given` to the served name: clients name the model by the path or id of its
// tokenizer, whose last part is the served name.
std::string ServedNameOf(const std::string& given, const ServedModel& model);

void FillServerInfo(const ServedModel& model, openengine::ServerInfo& info);
void FillModelInfo(const ServedModel& model, openengine::ModelInfo& info);
// `now` is the system clock's time.
void FillLoad(const EngineStats& stats, absl::Time now, bool per_rank, openengine::LoadInfo& load);
// Adds the source of KV events, if it has an address that other hosts can use: a TCP socket that is
// not bound to every address.
void AddKvEventSource(const ServedModel& model, openengine::GetKvEventSourcesResponse& response);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_OPENENGINE_OPENENGINE_MODEL_H_
