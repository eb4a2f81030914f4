// The protocols of others that the data port can speak: --facades.
#ifndef TLM_SERVER_RPC_FACADES_H_
#define TLM_SERVER_RPC_FACADES_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/rpc/facades/facade.h"

namespace tlm {

// INVALID_ARGUMENT names one that does not exist or is given twice.
absl::Status CheckFacades(const std::vector<std::string>& names);

// Makes those of these names, which CheckFacades accepts. What `services` names and `gate` outlive
// them.
std::vector<std::unique_ptr<Facade>> MakeFacades(const std::vector<std::string>& names,
                                                 const CallServices& services, const RpcGate& gate);

// Whether one of them streams the events of the prefix cache: the engine then keeps a log of them.
bool WantKvEvents(const std::vector<std::string>& names);

// Tells how the gRPC method "/SERVICE/METHOD" would be served, if it is of a façade; otherwise
// empty.
std::string ExplainFacadeMethod(const std::string& method);

// The method of the calls that the log and metrics name `rpc`: "tlm.v1.LanguageModel/Generate" of
// "Generate", "vllm.grpc.engine.VllmEngine/Abort" of "vllm.Abort". "_OTHER" of a name without any.
std::string MethodNamed(std::string_view rpc);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_H_
