#include "server/rpc/unknown_call_service.h"

#include <fmt/format.h>

#include <string>

namespace tlm {
namespace {

// Long enough for any call of the contract; a client may send anything as a name.
constexpr size_t kMaxNameBytes = 100;

std::string Explain(const std::string& method) {
  if (method.rfind("/tlm.v1.Admin/", 0) == 0) {
    return "the Admin service is not built in this server";
  }
  return fmt::format("this server has no call {}", method.substr(0, kMaxNameBytes));
}

// Lives until gRPC is done with it.
class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const std::string& message) {
    Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, message));
  }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnknownCallService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  return new Refusal(Explain(context->method()));
}

}  // namespace tlm
