#include "server/rpc/facades.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>

#include "model/base/errors.h"
#include "server/rpc/facades/dynamo/dynamo_facade.h"
#include "server/rpc/facades/oip/oip_facade.h"
#include "server/rpc/facades/openengine/openengine_facade.h"
#include "server/rpc/facades/vllm/vllm_facade.h"
#include "tlm/v1/language_model.grpc.pb.h"
#include "xds/service/orca/v3/orca.grpc.pb.h"

namespace tlm {
namespace {

template <typename Protocol>
std::unique_ptr<Facade> Make(const CallServices& services, const RpcGate& gate) {
  return std::make_unique<Protocol>(services, gate);
}

struct Row {
  std::string_view name;                   // in --facades
  std::vector<std::string_view> services;  // full names
  std::unique_ptr<Facade> (*make)(const CallServices& services, const RpcGate& gate);
  bool kv_events = false;  // streams the events of the prefix cache
};

const std::vector<Row>& Facades() {
  static const auto& rows = *new std::vector<Row>{
      {"oip", {inference::GRPCInferenceService::service_full_name()}, Make<OipFacade>},
      {"dynamo",
       {vllm::Inference::service_full_name(), vllm::Control::service_full_name()},
       Make<DynamoFacade>},
      {"openengine",
       {openengine::Inference::service_full_name(), openengine::Control::service_full_name()},
       Make<OpenEngineFacade>},
      {"vllm", {VllmEngineService::service_full_name()}, Make<VllmFacade>, true},
  };
  return rows;
}

const Row* RowOf(std::string_view name) {
  const auto row = std::find_if(Facades().begin(), Facades().end(),
                                [name](const Row& some) { return some.name == name; });
  return row == Facades().end() ? nullptr : &*row;
}

// "SERVICE/CALL" of the first of `services` that has the call; empty if none has it.
std::string MethodOf(const std::vector<std::string_view>& services, std::string_view call) {
  for (const std::string_view service : services) {
    const auto* const known =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(std::string(service));
    if (known->FindMethodByName(std::string(call)) != nullptr) {
      return fmt::format("{}/{}", service, call);
    }
  }
  return "";
}

}  // namespace

absl::Status CheckFacades(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (RowOf(names[i]) == nullptr) {
      std::vector<std::string_view> known;
      for (const Row& row : Facades()) known.push_back(row.name);
      return InvalidArgument("--facades has '{}', there are: {}", names[i], fmt::join(known, ", "));
    }
    if (std::count(names.begin(), names.end(), names[i]) > 1) {
      return InvalidArgument("--facades has '{}' twice", names[i]);
    }
  }
  return absl::OkStatus();
}

std::vector<std::unique_ptr<Facade>> MakeFacades(const std::vector<std::string>& names,
                                                 const CallServices& services,
                                                 const RpcGate& gate) {
  std::vector<std::unique_ptr<Facade>> facades;
  for (const std::string& name : names) {
    const Row* const row = RowOf(name);
    TLM_CHECK(row != nullptr);
    facades.push_back(row->make(services, gate));
  }
  return facades;
}

bool WantKvEvents(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    const Row* const row = RowOf(name);
    return row != nullptr && row->kv_events;
  });
}

std::string ExplainFacadeMethod(const std::string& method) {
  const std::string service = method.substr(1, method.rfind('/') - 1);
  for (const Row& row : Facades()) {
    if (std::count(row.services.begin(), row.services.end(), service) == 0) continue;
    const auto* const known =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
    std::vector<std::string_view> methods;
    for (int i = 0; i < known->method_count(); ++i) methods.push_back(known->method(i)->name());
    return fmt::format("with --facades={} the server answers {}", row.name,
                       fmt::join(methods, ", "));
  }
  return "";
}

std::string MethodNamed(std::string_view rpc) {
  const size_t dot = rpc.find('.');
  const Row* const row = dot == rpc.npos ? nullptr : RowOf(rpc.substr(0, dot));
  std::string method;
  if (row != nullptr) {
    method = MethodOf(row->services, rpc.substr(dot + 1));
  } else {
    method = MethodOf({v1::LanguageModel::service_full_name(),
                       xds::service::orca::v3::OpenRcaService::service_full_name()},
                      rpc);
    for (const Row& other : Facades()) {
      if (method.empty()) method = MethodOf(other.services, rpc);
    }
  }
  return method.empty() ? "_OTHER" : method;
}

}  // namespace tlm
