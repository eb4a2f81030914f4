// The beginning of every call: authentication and trace context.
#ifndef TLM_SERVER_RPC_CALL_CALL_ENTRY_H_
#define TLM_SERVER_RPC_CALL_CALL_ENTRY_H_

#include <grpcpp/grpcpp.h>

#include <string>
#include <string_view>

#include "server/rpc/call/call_record.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// A record of the call named `name` that arrives now: `access` is OK if its credentials have
// `role`; `caller` is the principal they name. The trace is that of the metadata `traceparent`, or
// a new one. The log and metrics have the name, "Generate" or "vllm.Generate"; MethodNamed of
// server/rpc/facades.h knows the method.
CallRecord BeginCall(const char* name, Role role, grpc::ServerContextBase& context,
                     const CallServices& services);

// Returns the call's span to the client, in the initial metadata of its first message. A call that
// fails without a message has none, so that gRPC sends trailers alone: clients may retry only such
// calls, and gateways can still choose a status of their own.
void ReturnTrace(grpc::ServerContextBase& context, const CallRecord& record);

// The record of a call that comes before there is a model: how it ends.
CallRecord StartingCall(const char* name, grpc::ServerContextBase& context,
                        const CallServices& services);

// The address in what gRPC calls a peer ("ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711"), without its
// port; of another kind of transport the kind ("unix").
std::string PeerAddress(std::string_view peer);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_CALL_CALL_ENTRY_H_
