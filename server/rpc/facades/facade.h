// A protocol of others that the data port speaks besides tlm.v1.
#ifndef TLM_SERVER_RPC_FACADES_FACADE_H_
#define TLM_SERVER_RPC_FACADES_FACADE_H_

#include <atomic>
#include <vector>

#include "server/net/grpc_listener.h"
#include "server/rpc/call/gate.h"
#include "server/rpc/call/rpc_context.h"

namespace tlm {

// Its folder maps messages to the calls that exist; server/rpc/facades.cc lists all of them.
// Thread-safe: gRPC calls its services from its threads.
class Facade {
 public:
  // What `services` names and `gate` outlive the façade and its calls.
  Facade(const CallServices& services, const RpcGate& gate) : services_(services), gate_(gate) {}
  Facade(const Facade&) = delete;
  Facade& operator=(const Facade&) = delete;
  virtual ~Facade() = default;

  // The gRPC services, which live as long as this.
  virtual std::vector<GrpcListener::NamedService> Services() = 0;

  // Whether the server is, as its health says.
  void SetServing(bool serving) { serving_ = serving; }
  bool serving() const { return serving_; }
  const CallServices& services() const { return services_; }
  const RpcGate& gate() const { return gate_; }

 private:
  const CallServices services_;
  const RpcGate& gate_;
  std::atomic<bool> serving_{false};
};

}  // namespace tlm

#endif  // TLM_SERVER_RPC_FACADES_FACADE_H_
