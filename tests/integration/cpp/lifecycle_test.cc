// Starting, draining and ending of the real server.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"
#include "tlm/v1/language_model.grpc.pb.h"

namespace tlm {
namespace {

using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

// A generation that runs until it is read to its end. A large one has more output than a connection
// buffers, so that it runs as long as it is not read.
struct Stream {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>> reader;

  Stream(v1::LanguageModel::Stub& stub, uint32_t max_new_tokens, bool large = false) {
    v1::GenerateRequest request;
    if (large) {
      request.mutable_sampling()->set_num_sequences(16);
      request.mutable_output()->set_top_logprobs(20);
    }
    request.set_prompt("The king");
    request.mutable_stopping()->set_max_new_tokens(max_new_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    reader = stub.Generate(&context, request);
  }
  bool WaitUntilStarted() {
    v1::GenerateResponse event;
    return reader->Read(&event) && event.has_started();
  }
  // Reads to the end; the tokens the summary counts.
  grpc::Status Finish(uint64_t* completion_tokens) {
    v1::GenerateResponse event;
    while (reader->Read(&event)) {
      if (event.has_summary()) *completion_tokens = event.summary().usage().completion_tokens();
    }
    return reader->Finish();
  }
};

class LifecycleTest : public ::testing::Test {
 protected:
  void Serve(const std::vector<std::string>& extra = {}) {
    server_ = ServerProcess::Serve(extra);
    channel_ = grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials());
    stub_ = v1::LanguageModel::NewStub(channel_);
  }
  HealthCheckResponse::ServingStatus Health(const std::string& service) {
    grpc::ClientContext context;
    grpc::health::v1::HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    grpc::health::v1::Health::NewStub(channel_)->Check(&context, request, &response);
    return response.status();
  }

  static std::string ReasonOf(const grpc::Status& status) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
    google::rpc::Status details;
    google::rpc::ErrorInfo info;
    details.ParseFromString(status.error_details());
    for (const auto& detail : details.details()) detail.UnpackTo(&info);
    return info.reason();
  }

  std::unique_ptr<ServerProcess> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::LanguageModel::Stub> stub_;
};

TEST_F(LifecycleTest, ServesHealthAndThePortFileUntilSigterm) {
  const TempDir dir;
  const std::string port_file = dir.File("port");
  Serve({"--port_file=" + port_file});
  int port = 0;
  std::ifstream(port_file) >> port;
  EXPECT_EQ(port, server_->port());
  EXPECT_EQ(Health(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(Health("tlm.v1.LanguageModel"), HealthCheckResponse::SERVING);
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(port_file));
}

TEST_F(LifecycleTest, SigtermFinishesWhatRunsAndRefusesWhatIsNew) {
  Serve();
  constexpr uint32_t kTokens = 900;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 8; ++i) {
    streams.push_back(std::make_unique<Stream>(*stub_, kTokens));
    ASSERT_TRUE(streams.back()->WaitUntilStarted());
  }
  server_->Signal(SIGTERM);
  ASSERT_TRUE(server_->WaitForOutput("draining"));

  uint64_t tokens = 0;
  grpc::ChannelArguments own_connection;
  own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto newcomer = v1::LanguageModel::NewStub(grpc::CreateCustomChannel(
      server_->address(), grpc::InsecureChannelCredentials(), own_connection));
  EXPECT_EQ(Stream(*newcomer, 1).Finish(&tokens).error_code(), grpc::StatusCode::UNAVAILABLE);

  for (const auto& stream : streams) {
    const grpc::Status status = stream->Finish(&tokens);
    EXPECT_TRUE(status.ok()) << status.error_message() << " after " << tokens;
    EXPECT_EQ(tokens, kTokens);
  }
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->output(), HasSubstr("kv_blocks_used=0"));
}

TEST_F(LifecycleTest, DuringTheGraceItIsNotServingButServes) {
  Serve({"--withdrawal_grace=1h"});
  Stream running(*stub_, 1000, /*large=*/true);
  ASSERT_TRUE(running.WaitUntilStarted());
  server_->Signal(SIGTERM);
  ASSERT_TRUE(server_->WaitForOutput("withdrawn"));
  EXPECT_EQ(Health(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(Health("tlm.v1.LanguageModel"), HealthCheckResponse::NOT_SERVING);
  uint64_t tokens = 0;
  EXPECT_TRUE(Stream(*stub_, 3).Finish(&tokens).ok());
  EXPECT_EQ(tokens, 3);
  // The second signal ends the grace and all that runs.
  server_->Signal(SIGTERM);
  EXPECT_EQ(ReasonOf(running.Finish(&tokens)), "DRAINING");
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(LifecycleTest, TheGraceEndsByItselfAndSigintLeavesItOut) {
  for (const auto& [grace, signal] : {std::pair("10ms", SIGTERM), std::pair("1h", SIGINT)}) {
    Serve({std::string("--withdrawal_grace=") + grace});
    server_->Signal(signal);
    EXPECT_EQ(server_->Wait(), 0) << grace;
  }
}

TEST_F(LifecycleTest, TheDrainEndsWithUnavailableAtItsTimeout) {
  Serve({"--drain_timeout=50ms"});
  Stream stream(*stub_, 1000, /*large=*/true);
  ASSERT_TRUE(stream.WaitUntilStarted());
  server_->Signal(SIGTERM);
  uint64_t tokens = 0;
  EXPECT_EQ(ReasonOf(stream.Finish(&tokens)), "DRAINING");
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->output(), HasSubstr("kv_blocks_used=0"));
}

TEST_F(LifecycleTest, ASecondSignalCutsTheDrainShort) {
  Serve({"--drain_timeout=1h"});
  Stream stream(*stub_, 1000, /*large=*/true);
  ASSERT_TRUE(stream.WaitUntilStarted());
  server_->Signal(SIGTERM);
  ASSERT_TRUE(server_->WaitForOutput("draining"));
  server_->Signal(SIGTERM);
  uint64_t tokens = 0;
  EXPECT_EQ(stream.Finish(&tokens).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(LifecycleTest, AReaderThatStoppedReadingDoesNotKeepTheServer) {
  Serve({"--drain_timeout=50ms"});
  Stream stream(*stub_, 1000, /*large=*/true);
  ASSERT_TRUE(stream.WaitUntilStarted());
  server_->Signal(SIGTERM);
  // Never read again.
  EXPECT_EQ(server_->Wait(), 0);
}

}  // namespace
}  // namespace tlm
