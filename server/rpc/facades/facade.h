// Defines the base class of façades: other protocols that the data port speaks in addition to
// tlm.v1.
#ifndef TLM_SERVER_RPC_FACADES_FACADE_H_
#define TLM_SERVER_RPC_FACADES_FACADE_H_

#include <google/protobuf/message.h>
#include <google/protobuf/repeated_field.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/auth/principal.h"
#include "server/net/grpc_listener.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// A façade's folder maps its messages to calls of tlm.v1; server/rpc/facades.cc lists all façades.
// Thread-safe: gRPC calls its services from its threads.
class Facade {
 public:
  // The objects in `services` and `gate` outlive the façade and its calls.
  Facade(const CallServices& services, const RpcGate& gate) : services_(services), gate_(gate) {}
  Facade(const Facade&) = delete;
  Facade& operator=(const Facade&) = delete;
  virtual ~Facade() = default;

  // Returns the gRPC services, which live as long as this object.
  virtual std::vector<GrpcListener::NamedService> Services() = 0;

  // Sets whether the server is serving: the same as in its health.
  void SetServing(bool serving) { serving_ = serving; }
  bool serving() const { return serving_; }
  const CallServices& services() const { return services_; }
  const RpcGate& gate() const { return gate_; }

 private:
  const CallServices services_;
  const RpcGate& gate_;
  std::atomic<bool> serving_{false};
};

// Returns the status of calls that their own client ends: ABORTED, reason ABORTED_BY_CLIENT.
absl::Status AbortedByClient();

// Ends the calls of the caller's tenant with these ids, and returns how many it ended; an inactive
// id is no error. INVALID_ARGUMENT, and nothing is ended, for more than 1,024 ids or an id longer
// than a request id may be.
absl::StatusOr<int64_t> AbortOwnCalls(
    const RpcContext& rpc, const Principal& caller,
    const google::protobuf::RepeatedPtrField<std::string>& request_ids);

// INVALID_ARGUMENT names the first field, in `message` or its nested messages, that the server's
// copy of the protocol does not know: a newer client must not believe that it was honoured.
absl::Status CheckFieldsKnown(const google::protobuf::Message& message);

// Turns UNIMPLEMENTED into INVALID_ARGUMENT, with its message and details; keeps other statuses.
// Routers hold UNIMPLEMENTED against the server instead of the request.
absl::Status HeldAgainstRequest(absl::Status status);

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_FACADE_H_
