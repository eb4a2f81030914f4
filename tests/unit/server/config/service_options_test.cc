#include "server/config/service_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/flags/reflection.h"
#include "server/config/options.h"
#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::HasSubstr;

class ServiceOptionsTest : public ::testing::Test {
 protected:
  // Flags are the process's: they are as they were afterwards.
  static absl::StatusOr<ServiceOptions> Parse(std::vector<std::string> flags) {
    const absl::FlagSaver saver;
    flags.insert(flags.begin(), {"tlm-server", "--model=somewhere"});
    std::vector<char*> argv;
    for (std::string& flag : flags) argv.push_back(flag.data());
    argv.push_back(nullptr);
    const absl::StatusOr<ServerOptions> options =
        ParseOptions(static_cast<int>(flags.size()), argv.data());
    if (!options.ok()) return options.status();
    return options->service;
  }
  static void ExpectRefused(std::vector<std::string> flags, const std::string& word) {
    EXPECT_THAT(Parse(flags), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(word)))
        << ::testing::PrintToString(flags);
  }
};

TEST_F(ServiceOptionsTest, ThereIsNoAdminPortUnlessAskedFor) {
  EXPECT_EQ(Parse({})->admin_port, std::nullopt);
  EXPECT_EQ(Parse({"--admin_port=-1"})->admin_port, std::nullopt);
  EXPECT_EQ(Parse({"--admin_port=0"})->admin_port, 0);
  const absl::StatusOr<ServiceOptions> options =
      Parse({"--admin_port=7000", "--admin_host=::1", "--port_file=f"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->admin_port, 7000);
  EXPECT_EQ(options->admin_host, "::1");
  EXPECT_EQ(options->port_file, "f");
  EXPECT_EQ(options->admin_port_file, "f.admin");
  EXPECT_EQ(options->metrics_port_file, "");
}

TEST_F(ServiceOptionsTest, OptionalPortsOutOfRangeAreRefused) {
  ExpectRefused({"--admin_port=65536"}, "--admin_port is 65536, the range is [-1, 65535]");
  ExpectRefused({"--admin_port=-2"}, "--admin_port");
  ExpectRefused({"--metrics_port=65536"}, "--metrics_port is 65536, the range is [-1, 65535]");
}

TEST_F(ServiceOptionsTest, OffLoopbackThereIsTlsOrAnExplicitWord) {
  for (const char* const flag : {"--host=", "--admin_host="}) {
    for (const char* const host : {"0.0.0.0", "::", "10.0.0.1", "example.org", "::ffff:10.0.0.1"}) {
      const std::string given = std::string(flag) + host;
      ExpectRefused({given}, "--insecure");
      EXPECT_THAT(Parse({given, "--insecure"}), IsOk());
      EXPECT_THAT(Parse({given, "--tls_cert=c", "--tls_key=k"}), IsOk());
    }
    ExpectRefused({flag}, "is empty");
    for (const char* const host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"}) {
      EXPECT_THAT(Parse({std::string(flag) + host}), IsOk()) << host;
    }
  }
}

TEST_F(ServiceOptionsTest, AdminOffLoopbackNeedsCredentialsOrInsecure) {
  const std::vector<std::string> open = {"--admin_port=0", "--admin_host=0.0.0.0", "--tls_cert=c",
                                         "--tls_key=k"};
  const auto with = [&open](const char* flag) {
    std::vector<std::string> flags = open;
    flags.emplace_back(flag);
    return flags;
  };
  ExpectRefused(open, "give --api_keys");
  for (const char* const flag : {"--api_keys=f", "--tls_client_ca=a", "--insecure"}) {
    EXPECT_THAT(Parse(with(flag)), IsOk()) << flag;
  }
}

TEST_F(ServiceOptionsTest, MetricsOffLoopbackHaveTheirOwnWord) {
  ExpectRefused({"--metrics_host=0.0.0.0"}, "--metrics_insecure");
  ExpectRefused({"--metrics_host=0.0.0.0", "--insecure"}, "--metrics_insecure");
  ExpectRefused({"--metrics_host=0.0.0.0", "--tls_cert=c", "--tls_key=k"}, "--metrics_insecure");
  EXPECT_THAT(Parse({"--metrics_host=0.0.0.0", "--metrics_insecure"}), IsOk());
}

TEST_F(ServiceOptionsTest, KvEventsOffLoopbackNeedAWord) {
  EXPECT_EQ(Parse({})->kv_events.endpoint, "");
  for (const char* const flag : {"--kv_events_endpoint=", "--kv_events_replay_endpoint="}) {
    const auto with = [&](const std::string& endpoint) {
      std::vector<std::string> flags = {"--kv_events_endpoint=ipc://first"};
      flags.push_back(flag + endpoint);
      return flags;
    };
    for (const char* const local :
         {"tcp://127.0.0.1:5557", "tcp://127.0.0.1:*", "tcp://[::1]:1", "tcp://localhost:65535",
          "ipc:///run/tlm/events", "ipc://@tlm"}) {
      EXPECT_THAT(Parse(with(local)), IsOk()) << local;
    }
    for (const char* const open : {"tcp://*:5557", "tcp://0.0.0.0:5557", "tcp://[::]:5557",
                                   "tcp://eth0:5557", "tcp://example.org:5557"}) {
      ExpectRefused(with(open), "--insecure");
      std::vector<std::string> insecure = with(open);
      insecure.emplace_back("--insecure");
      EXPECT_THAT(Parse(insecure), IsOk()) << open;
      // TLS does not encrypt it.
      std::vector<std::string> tls = with(open);
      tls.insert(tls.end(), {"--tls_cert=c", "--tls_key=k"});
      ExpectRefused(tls, "--insecure");
    }
    for (const char* const wrong :
         {"127.0.0.1:5557", "udp://127.0.0.1:5557", "inproc://events", "tcp://127.0.0.1",
          "tcp://127.0.0.1:0", "tcp://127.0.0.1:65536", "tcp://127.0.0.1:x", "tcp://:5557",
          "tcp://", "ipc://", "tcp:127.0.0.1:5557"}) {
      ExpectRefused(with(wrong), "it must be tcp://HOST:PORT or ipc://PATH");
    }
    ExpectRefused(with("ipc://" + std::string(108, 'a')), "at most 113 bytes");
  }
}

TEST_F(ServiceOptionsTest, KvEventsAreOfCallsWithoutCredentials) {
  const std::string endpoint = "--kv_events_endpoint=ipc://events";
  ExpectRefused({endpoint, "--api_keys=f"}, "excludes --api_keys");
  ExpectRefused({endpoint, "--tls_cert=c", "--tls_key=k", "--tls_client_ca=a"}, "--tls_client_ca");
  EXPECT_THAT(Parse({endpoint, "--tls_cert=c", "--tls_key=k"}), IsOk());
  ExpectRefused({endpoint, "--noprefix_cache"}, "needs --prefix_cache");
  ExpectRefused({"--kv_events_topic=t"}, "--kv_events_topic needs --kv_events_endpoint");
  ExpectRefused({"--kv_events_replay_endpoint=ipc://r"}, "replay_endpoint needs");
  ExpectRefused({endpoint, "--kv_events_topic=" + std::string(256, 't')}, "256 bytes");
}

TEST_F(ServiceOptionsTest, TracesAreEncryptedOffLoopback) {
  EXPECT_EQ(Parse({})->otlp.endpoint, "");
  for (const char* const local : {"127.0.0.1:4317", "localhost:4317", "[::1]:4317"}) {
    EXPECT_FALSE(Parse({std::string("--otlp_endpoint=") + local})->otlp.tls) << local;
  }
  EXPECT_TRUE(Parse({"--otlp_endpoint=localhost:4317", "--otlp_ca=f"})->otlp.tls);
  for (const char* const remote : {"collector:4317", "10.0.0.1:1", "[fd00::1]:65535"}) {
    const std::string flag = std::string("--otlp_endpoint=") + remote;
    EXPECT_TRUE(Parse({flag})->otlp.tls) << remote;
    EXPECT_FALSE(Parse({flag, "--otlp_insecure"})->otlp.tls) << remote;
  }
  ExpectRefused({"--otlp_endpoint=a:1", "--otlp_ca=f", "--otlp_insecure"}, "exclude each other");
}

TEST_F(ServiceOptionsTest, TracesNeedACollectorAndSensibleValues) {
  for (const char* const bad :
       {"collector", "collector:", ":4317", "collector:0", "collector:65536",
        "http://collector:4317", "collector:4317/v1", "::1:4317", "[]:1"}) {
    ExpectRefused({std::string("--otlp_endpoint=") + bad}, "it must be HOST:PORT");
  }
  ExpectRefused({"--otlp_ca=f"}, "--otlp_ca needs --otlp_endpoint");
  ExpectRefused({"--otlp_insecure"}, "--otlp_insecure needs --otlp_endpoint");
  for (const char* const bad : {"-0.1", "1.1", "nan"}) {
    ExpectRefused({std::string("--otlp_sample_ratio=") + bad}, "the range is [0, 1]");
  }
  ExpectRefused({"--otlp_service_name="}, "--otlp_service_name is empty");
}

TEST_F(ServiceOptionsTest, TlsFilesBelongTogether) {
  ExpectRefused({"--tls_cert=c"}, "--tls_key is missing");
  ExpectRefused({"--tls_key=k"}, "--tls_cert is missing");
  ExpectRefused({"--tls_client_ca=a"}, "needs --tls_cert and --tls_key");
  ExpectRefused({"--tls_cert=c", "--tls_key=k", "--tls_client_auth=optional"},
                "needs --tls_client_ca");
  ExpectRefused({"--tls_client_auth=perhaps"}, "may be require or optional");
}

TEST_F(ServiceOptionsTest, CallsNeedCredentialsOnceThereAreSome) {
  EXPECT_FALSE(Parse({})->credentials_required());
  EXPECT_TRUE(Parse({"--api_keys=f"})->credentials_required());
  EXPECT_TRUE(Parse({"--tls_cert=c", "--tls_key=k", "--tls_client_ca=a"})->credentials_required());
}

TEST_F(ServiceOptionsTest, ReflectionIsOffWhereCallsNeedCredentials) {
  EXPECT_TRUE(Parse({})->reflection);
  EXPECT_FALSE(Parse({"--reflection=off"})->reflection);
  EXPECT_FALSE(Parse({"--reflection=auto", "--api_keys=f"})->reflection);
  EXPECT_TRUE(Parse({"--reflection=on", "--api_keys=f"})->reflection);
  ExpectRefused({"--reflection=maybe"}, "may be auto, on or off");
}

TEST_F(ServiceOptionsTest, LimitsOfConnectionsHaveRanges) {
  ExpectRefused({"--max_concurrent_streams=0"}, "[1, 65536]");
  ExpectRefused({"--max_connection_age=0s"}, "must be positive");
}

TEST_F(ServiceOptionsTest, TimesOfTheEndAreNotNegative) {
  for (const char* const flag : {"withdrawal_grace", "drain_timeout", "stall_timeout"}) {
    ExpectRefused({std::string("--") + flag + "=-1s"}, "must not be negative");
  }
}

TEST_F(ServiceOptionsTest, LogsAreTextOrJson) {
  EXPECT_EQ(Parse({})->log_format, LogFormat::kText);
  EXPECT_EQ(Parse({"--log_format=json"})->log_format, LogFormat::kJson);
  ExpectRefused({"--log_format=xml"}, "--log_format is xml, it may be text or json");
}

}  // namespace
}  // namespace tlm
