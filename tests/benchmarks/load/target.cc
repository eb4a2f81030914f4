#include "tests/benchmarks/load/target.h"

#include <grpcpp/grpcpp.h>

#include "client/cpp/status.h"
#include "model/base/errors.h"

namespace tlm::bench {
namespace {

constexpr int kMaxConnections = 1024;

std::shared_ptr<grpc::Channel> NewConnection(const std::string& address) {
  grpc::ChannelArguments arguments;
  // Channels to one address would share a connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

absl::Status AskForModelInfo(v1::LanguageModel::Stub& stub, absl::Duration patience,
                             v1::ModelInfoResponse* model) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience));
  return client::FromGrpcStatus(stub.ModelInfo(&context, v1::ModelInfoRequest(), model));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Target>> Target::Connect(const std::string& address, int connections,
                                                        absl::Duration patience) {
  if (connections < 1 || connections > kMaxConnections) {
    return FailedPrecondition("{} connections are not within 1 to {}", connections,
                              kMaxConnections);
  }
  std::unique_ptr<Target> target(new Target());
  for (int i = 0; i < connections; ++i) {
    target->stubs_.push_back(v1::LanguageModel::NewStub(NewConnection(address)));
    // Each of them is established before anything is measured.
    const absl::Status status = AskForModelInfo(*target->stubs_.back(), patience, &target->model_);
    if (!status.ok()) return WithContext(status, address);
  }
  return target;
}

v1::LanguageModel::Stub& Target::NextStub() {
  next_ = (next_ + 1) % stubs_.size();
  return *stubs_[next_];
}

}  // namespace tlm::bench
