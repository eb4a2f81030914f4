// `tlm admin` against an Admin service in this process.
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include "tests/unit/client/cli/command_fixture.h"
#include "tlm/v1/admin.grpc.pb.h"

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Remembers the latest request of each kind.
class FakeAdmin final : public v1::Admin::Service {
 public:
  grpc::Status GetLoad(grpc::ServerContext*, const v1::GetLoadRequest*,
                       v1::GetLoadResponse* response) override {
    Merge(R"(queued_requests: 3 queued_tokens: 4000 estimated_queue_time { nanos: 250000000 }
             kv_blocks_total: 200 kv_blocks_used: 50 uptime { seconds: 3700 })",
          *response);
    return grpc::Status::OK;
  }
  grpc::Status Abort(grpc::ServerContext*, const v1::AbortRequest* request,
                     v1::AbortResponse* response) override {
    abort = *request;
    if (request->request_ids_size() > 0) response->add_aborted(request->request_ids(0));
    if (request->request_ids_size() > 1) response->add_not_found(request->request_ids(1));
    response->set_aborted_total(1);
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest* request,
                     v1::DrainResponse* response) override {
    drain = *request;
    response->set_active_requests(2);
    return grpc::Status::OK;
  }
  grpc::Status FlushPrefixCache(grpc::ServerContext*, const v1::FlushPrefixCacheRequest*,
                                v1::FlushPrefixCacheResponse* response) override {
    response->set_blocks_freed(1234);
    return grpc::Status::OK;
  }
  grpc::Status GetConfig(grpc::ServerContext*, const v1::GetConfigRequest*,
                         v1::GetConfigResponse* response) override {
    Merge(R"(options { name: "port" value: "50051" default_value: "50051" }
             options { name: "port" value: "50052" default_value: "50051" })",
          *response);
    return grpc::Status::OK;
  }

  v1::AbortRequest abort;
  v1::DrainRequest drain;
};

class AdminTest : public CommandTest {
 protected:
  AdminTest() {
    grpc::ServerBuilder builder;
    int port;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    target_ = "127.0.0.1:" + std::to_string(port);
    target_flag_ = "--admin_target=" + target_;
  }

  FakeAdmin admin_;
  std::string target_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(AdminTest, TellsTheLoad) {
  EXPECT_EQ(Run("admin load"), kSuccess) << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("3 requests, 4,000 tokens, about 250ms to wait\n"));
  EXPECT_THAT(out_.str(), HasSubstr("50 (25.0 %)\n"));
  EXPECT_THAT(out_.str(), HasSubstr("1h1m40s\n"));
  EXPECT_EQ(Run("admin load --json"), kSuccess);
  EXPECT_THAT(out_.str(), StartsWith("{\"queued_requests\":\"3\","));
}

TEST_F(AdminTest, AbortsRequests) {
  EXPECT_EQ(Run("admin abort a b"), kSuccess) << err_.str();
  EXPECT_THAT(admin_.abort, IsProto("request_ids: ['a', 'b']"));
  EXPECT_EQ(out_.str(), "ended a\nnot active b\n1 requests ended\n");
  EXPECT_EQ(Run("admin abort --all --tenant=acme"), kSuccess);
  EXPECT_THAT(admin_.abort, IsProto("all: true tenant: 'acme'"));
}

TEST_F(AdminTest, Drains) {
  EXPECT_EQ(Run("admin drain"), kSuccess) << err_.str();
  EXPECT_FALSE(admin_.drain.has_time_limit());
  EXPECT_EQ(out_.str(), "draining, 2 calls active\n");
  EXPECT_EQ(Run("admin drain --time_limit=1m30s"), kSuccess);
  EXPECT_EQ(admin_.drain.time_limit().seconds(), 90);
}

TEST_F(AdminTest, FlushesThePrefixCache) {
  EXPECT_EQ(Run("admin flush"), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "1,234 KV blocks freed\n");
}

TEST_F(AdminTest, MarksWhatIsNotTheDefault) {
  EXPECT_EQ(Run("admin config"), kSuccess) << err_.str();
  EXPECT_EQ(out_.str(), "   port  50051\n*  port  50052\n");
}

TEST_F(AdminTest, RefusesWrongUsage) {
  ExpectUsageErrors("admin",
                    {"", "restart", "load x", "abort", "abort x --all", "drain --tenant=a"});
  ExpectUsageError(RunWithoutTarget("admin load"), "admin: ", "--admin_target");
}

TEST_F(AdminTest, ReportsAServerThatIsNotThere) {
  EXPECT_EQ(RunWithoutTarget("admin load --admin_target=127.0.0.1:1"), kFailure);
  EXPECT_THAT(err_.str(), StartsWith("tlm: admin: UNAVAILABLE: "));
}

// What `tlm top` prints where there is no terminal.
TEST_F(AdminTest, TopTellsTheLoadOfSeveralServers) {
  EXPECT_EQ(RunWithoutTarget("top --admin_target=" + target_ + "," + target_), kSuccess)
      << err_.str();
  EXPECT_THAT(out_.str(), HasSubstr("25.0 %"));
  EXPECT_THAT(out_.str(), HasSubstr("1h1m40s\n" + target_ + "  serving"));
}

TEST_F(AdminTest, TopNamesUnreachableTargets) {
  EXPECT_EQ(RunWithoutTarget("top --once --admin_target=" + target_ + ",127.0.0.1:1"), kFailure);
  EXPECT_THAT(out_.str(), HasSubstr("\n" + target_ + "  serving"));
  EXPECT_THAT(out_.str(), HasSubstr("unreachable\n"));
  EXPECT_THAT(err_.str(), StartsWith("tlm: top: 127.0.0.1:1: UNAVAILABLE: "));
}

TEST_F(AdminTest, TopRefusesWrongUsage) {
  ExpectUsageError(RunWithoutTarget("top"), "top: ", "--admin_target");
  ExpectUsageErrors("top", {"x"});
  std::string many = "--admin_target=a:1";
  for (int i = 0; i < 64; ++i) many += ",a:1";
  EXPECT_EQ(RunWithoutTarget("top " + many), kFailure);
  EXPECT_THAT(err_.str(), HasSubstr("65 servers are named, the range is [1, 64]"));
}

}  // namespace
}  // namespace tlm::cli
