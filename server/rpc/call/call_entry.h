// Starts every call: authentication and trace context.
#ifndef TLM_SERVER_RPC_CALL_CALL_ENTRY_H_
#define TLM_SERVER_RPC_CALL_CALL_ENTRY_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>

#include "server/rpc/call/call_record.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Returns the record of the call `name` that arrives now. `access` is OK if its credentials have
// `role`; `caller` is their principal. The trace comes from the metadata `traceparent`, or is new.
// `name` is the name in the log and metrics, "Generate" or "vllm.Generate"; MethodNamed of
// server/rpc/facades.h maps it to the method.
CallRecord BeginCall(const char* name, Role role, grpc::ServerContextBase& context,
                     const CallServices& services);

// Returns the call's span to the client, in the initial metadata of its first message. Do not call
// it for a call that fails without a message: gRPC then sends trailers only. Clients may retry only
// such calls, and gateways can still choose a status of their own.
void ReturnTrace(grpc::ServerContextBase& context, const CallRecord& record);

// Returns the record, with its final status, of a call that arrives before there is a model.
CallRecord StartingCall(const char* name, grpc::ServerContextBase& context,
                        const CallServices& services);

// Returns the address in a gRPC peer name ("ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711"), without
// its port; for another kind of transport the kind ("unix").
std::string PeerAddress(std::string_view peer);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_ENTRY_H_
