#include "server/rpc/load/load_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "model/base/errors.h"
#include "tests/unit/server/rpc/rpc_fixture.h"

namespace tlm {
namespace {

using xds::data::orca::v3::OrcaLoadReport;
using xds::service::orca::v3::OpenRcaService;
using xds::service::orca::v3::OrcaLoadReportRequest;

// The service beside the fixture's own, with the same engine.
class LoadServiceTest : public RpcTest {
 protected:
  LoadServiceTest() {
    EngineStats stats;
    stats.running_requests = 3;
    engine_.set_stats(stats);
    grpc::ServerBuilder builder;
    builder.RegisterService(&loads_);
    load_server_ = builder.BuildAndStart();
    load_stub_ = OpenRcaService::NewStub(load_server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~LoadServiceTest() override {
    load_server_->Shutdown(std::chrono::system_clock::now());
    load_server_->Wait();
  }

  std::unique_ptr<grpc::ClientReader<OrcaLoadReport>> Start(grpc::ClientContext& context) {
    return load_stub_->StreamCoreMetrics(&context, request_);
  }
  void Open() {
    load_gate_.Open(
        {call_services_, model_, engine_, admission_, calls_, text_pools_, constraints_, load_});
  }

  OrcaLoadReportRequest request_;
  RpcGate load_gate_;
  LoadService loads_{call_services_, load_gate_};
  std::unique_ptr<grpc::Server> load_server_;
  std::unique_ptr<OpenRcaService::Stub> load_stub_;
};

TEST_F(LoadServiceTest, ReportsAtOnceAndAfterEveryInterval) {
  Open();
  request_.mutable_report_interval()->set_nanos(1);  // raised to LoadService::kMinInterval
  const absl::Time begin = absl::Now();
  grpc::ClientContext context;
  const auto stream = Start(context);
  OrcaLoadReport report;
  ASSERT_TRUE(stream->Read(&report));
  EXPECT_DOUBLE_EQ(report.named_metrics().at("num_requests_running"), 3);
  EngineStats stats;
  stats.running_requests = 5;
  engine_.set_stats(stats);
  ASSERT_TRUE(stream->Read(&report));
  EXPECT_GE(absl::Now() - begin, LoadService::kMinInterval / 2);
  EXPECT_DOUBLE_EQ(report.named_metrics().at("num_requests_running"), 5);
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(LoadServiceTest, EndsItsStreamsWhenTheServerDrains) {
  Open();
  request_.mutable_report_interval()->set_seconds(315'576'000'000);  // the longest there is
  grpc::ClientContext context;
  const auto stream = Start(context);
  OrcaLoadReport report;
  ASSERT_TRUE(stream->Read(&report));
  loads_.EndStreams();
  EXPECT_FALSE(stream->Read(&report));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonIn(status), "DRAINING");
}

TEST_F(LoadServiceTest, RefusesWhileTheServerStarts) {
  grpc::ClientContext context;
  EXPECT_EQ(ReasonIn(Start(context)->Finish()), "STARTING");
}

TEST_F(LoadServiceTest, RefusesAnInvalidInterval) {
  Open();
  request_.mutable_report_interval()->set_seconds(-1);
  grpc::ClientContext context;
  const grpc::Status status = Start(context)->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status).field_violations(0).field(),
            "report_interval");
}

TEST_F(LoadServiceTest, BoundsTheStreams) {
  Open();
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<OrcaLoadReport>> stream;
  };
  std::vector<std::unique_ptr<Call>> calls(LoadService::kMaxStreams);
  OrcaLoadReport report;
  for (auto& call : calls) {
    call = std::make_unique<Call>();
    call->stream = Start(call->context);
  }
  for (auto& call : calls) ASSERT_TRUE(call->stream->Read(&report));
  grpc::ClientContext context;
  EXPECT_EQ(Start(context)->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  loads_.EndStreams();
  for (auto& call : calls) call->stream->Finish();
  // Once they have ended there is room again.
  for (bool refused = true; refused;) {
    grpc::ClientContext another;
    refused = !Start(another)->Read(&report);
  }
}

}  // namespace
}  // namespace tlm
