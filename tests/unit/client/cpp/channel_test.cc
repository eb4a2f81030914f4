#include "client/cpp/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tlm::client {
namespace {

using testing::HasSubstr;

TEST(ChannelTest, KnowsLocalTargets) {
  for (const char* target : {"127.0.0.1:50051", "localhost:1", "[::1]:50051", "unix:/run/tlm.sock",
                             "ipv4:127.1.2.3:80", "dns:///localhost:80", "localhost"}) {
    EXPECT_TRUE(IsLocalTarget(target)) << target;
  }
  for (const char* target :
       {"10.0.0.1:50051", "example.com:443", "localhost.example.com:443", "127.example.com:443",
        "[::2]:50051", "dns:///example.com:443", "ipv4:127.0.0.1:80,10.0.0.1:80", ""}) {
    EXPECT_FALSE(IsLocalTarget(target)) << target;
  }
}

TEST(ChannelTest, RefusesKeyWithoutCertificate) {
  ClientOptions options;
  options.client_key_file = "key.pem";
  EXPECT_EQ(MakeChannel("localhost:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ChannelTest, RefusesEmptyTarget) {
  EXPECT_EQ(MakeChannel("", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChannelTest, HostsWithoutAPortGetTheDefaultOne) {
  constexpr std::pair<const char*, const char*> kCases[] = {
      {"localhost", "localhost:50051"}, {"server.example.com", "server.example.com:50051"},
      {"127.0.0.1", "127.0.0.1:50051"}, {"[::1]", "[::1]:50051"},
      {"::1", "[::1]:50051"},           {"fe80::1%eth0", "[fe80::1%eth0]:50051"},
  };
  for (const auto& [target, with_port] : kCases) EXPECT_EQ(WithDefaultPort(target), with_port);
  for (const char* const target :
       {"", "localhost:1", "localhost:http", "127.0.0.1:443", "[::1]:1", "unix:socket",
        "unix:/run/socket", "unix-abstract:name", "dns:host", "dns:///host", "dns:///[::1]",
        "ipv4:127.0.0.1:1,127.0.0.1:2", "ipv6:[::1]:1", "xds:///service"}) {
    EXPECT_EQ(WithDefaultPort(target), target);
  }
}

TEST(ChannelTest, NamesFileThatCannotBeRead) {
  ClientOptions options;
  options.ca_file = "/nonexistent/ca.pem";
  const absl::Status status = MakeChannel("localhost:1", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent/ca.pem"));
}

TEST(ChannelTest, KeepsApiKeyOffThePlainNetwork) {
  ClientOptions options;
  options.api_key = "secret";
  const absl::Status status = MakeChannel("example.com:50051", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("secret")));

  EXPECT_TRUE(MakeChannel("127.0.0.1:50051", options).ok());
  options.use_tls = true;
  EXPECT_TRUE(MakeChannel("example.com:50051", options).ok());
  options.use_tls = false;
  options.allow_plaintext_api_key = true;
  EXPECT_TRUE(MakeChannel("example.com:50051", options).ok());
}

TEST(ChannelTest, RefusesUnprintableApiKey) {
  ClientOptions options;
  options.api_key = "secret\n";
  EXPECT_EQ(MakeChannel("localhost:1", options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tlm::client
