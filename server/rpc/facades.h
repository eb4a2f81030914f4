// Makes the façades: the protocols other than tlm.v1 that the data port can speak, chosen by
// --facades.
#ifndef TLM_SERVER_RPC_FACADES_H_
#define TLM_SERVER_RPC_FACADES_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/facades/facade.h"

namespace tlm {

// INVALID_ARGUMENT names a façade that does not exist or is given twice.
absl::Status CheckFacades(const std::vector<std::string>& names);

// Makes the façades with these names, which CheckFacades accepts. The objects in `services` and
// `gate` outlive them.
std::vector<std::unique_ptr<Facade>> MakeFacades(const std::vector<std::string>& names,
                                                 const CallServices& services, const RpcGate& gate);

// Returns whether one of these façades streams the events of the prefix cache, so that the engine
// must log them.
bool WantKvEvents(const std::vector<std::string>& names);

// If the gRPC method "/SERVICE/METHOD" belongs to a façade, explains how to enable it; otherwise
// empty.
std::string ExplainFacadeMethod(const std::string& method);

// Returns the method of the calls that the log and metrics name `rpc`:
// "tlm.v1.LanguageModel/Generate" for "Generate", "vllm.grpc.engine.VllmEngine/Abort" for
// "vllm.Abort". "_OTHER" for an unknown name.
std::string MethodNamed(std::string_view rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_H_
