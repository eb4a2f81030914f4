#include "server/rpc/call/unknown_call_service.h"

#include <fmt/format.h>

#include "server/rpc/call/call_entry.h"
#include "server/rpc/call/call_log.h"
#include "server/rpc/call/status_mapping.h"

namespace tlm {
namespace {

// Long enough for any method of the contract; a client may send any name.
constexpr size_t kMaxNameBytes = 100;

bool StartsWith(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

std::string Explain(const std::string& method, UnknownCallService::Port port,
                    std::string (*explain)(const std::string& method)) {
  if (port == UnknownCallService::Port::kData && StartsWith(method, "/tlm.v1.Admin/")) {
    return "the Admin service has a port of its own, which --admin_port opens";
  }
  if (port == UnknownCallService::Port::kAdmin && StartsWith(method, "/tlm.v1.LanguageModel/")) {
    return "the LanguageModel service has a port of its own, that of --port";
  }
  const std::string more = explain == nullptr ? "" : explain(method);
  if (!more.empty()) {
    return fmt::format("{} is not served: {}", method.substr(0, kMaxNameBytes), more);
  }
  return fmt::format("this port has no call {}", method.substr(0, kMaxNameBytes));
}

// Deletes itself once gRPC is done with it.
class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* UnknownCallService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const Role role = port_ == Port::kAdmin ? Role::kAdmin : Role::kInference;
  CallRecord record = BeginCall("unknown", role, *context, services_);
  record.status = record.access;
  if (record.status.ok()) {
    record.status = absl::UnimplementedError(Explain(context->method(), port_, explain_));
  }
  EndCall(record);
  return new Refusal(ToGrpcStatus(record.status));
}

}  // namespace tlm
