// Calls with prefix affinity, over replicas in this process.
#include "client/cpp/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/unit/client/fake_server.h"

namespace tlm::client {
namespace {

using testing::SizeIs;

class PrefixAffinityTest : public testing::Test {
 protected:
  void Serve(int replicas) {
    std::vector<std::string> targets;
    for (int i = 0; i < replicas; ++i) {
      servers_.push_back(std::make_unique<FakeServer>());
      servers_.back()->generate = {GenerateScript({"a", "b"}), grpc::Status::OK};
      targets.push_back(servers_.back()->target());
    }
    ClientOptions options;
    options.balance = Balance::kPrefixAffinity;
    client_ = *Client::Connect(targets, options);
  }
  std::unique_ptr<GenerateStream> Start(const std::string& prompt) {
    v1::GenerateRequest request;
    request.set_prompt(prompt);
    return client_->StartGenerate(request, options_);
  }
  // The target that answers a prompt.
  size_t HomeOf(const std::string& prompt) {
    const auto stream = Start(prompt);
    EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
    return stream->target();
  }

  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::unique_ptr<Client> client_;
  CallOptions options_;
};

TEST_F(PrefixAffinityTest, SendsWhatBeginsAlikeToOneReplica) {
  Serve(3);
  std::set<size_t> homes;
  for (int i = 0; i < 30; ++i) {
    const std::string beginning = std::string(256, 'x').insert(0, std::to_string(i));
    const size_t home = HomeOf(beginning + "one");
    EXPECT_EQ(HomeOf(beginning + "another"), home);
    homes.insert(home);
  }
  EXPECT_THAT(homes, SizeIs(3));
}

TEST_F(PrefixAffinityTest, GoesByTheApplicationsKey) {
  Serve(3);
  options_.affinity_key = "session 1";
  const size_t home = HomeOf("one");
  for (const char* prompt : {"two", "three", "four", "five"}) EXPECT_EQ(HomeOf(prompt), home);
}

TEST_F(PrefixAffinityTest, ContinuesOnTheReplicaThatComesNext) {
  Serve(3);
  const size_t home = HomeOf("p");
  Script<v1::GenerateResponse>& cut = servers_[home]->generate;
  cut.responses.resize(1);
  cut.status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed");
  const auto stream = Start("p");
  EXPECT_TRUE(stream->Finish().ok()) << stream->Finish();
  EXPECT_EQ(stream->resumes(), 1);
  EXPECT_NE(stream->target(), home);
  // While the first is avoided, the next call goes where that one went.
  EXPECT_EQ(HomeOf("p"), stream->target());
}

TEST_F(PrefixAffinityTest, PassesCallsOnFromAReplicaThatRunsMoreThanItsShare) {
  Serve(2);
  for (const auto& server : servers_) {
    server->generate.responses.resize(1);
    server->generate.hold = true;
  }
  std::vector<std::unique_ptr<GenerateStream>> streams;
  std::vector<size_t> counts(2);
  for (int i = 0; i < 12; ++i) {
    streams.push_back(Start("p"));
    ++counts[streams.back()->target()];
  }
  EXPECT_THAT(counts, testing::UnorderedElementsAre(8, 4));  // 5/4 of 12 / 2, rounded up
}

}  // namespace
}  // namespace tlm::client
