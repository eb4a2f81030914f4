#include "client/cli/base/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "absl/flags/reflection.h"
#include "client/cpp/status.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/support/proto.h"
#include "tlm/v1/generate.pb.h"

namespace tlm::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

bool SetFlag(const char* name, const char* value) {
  std::string error;
  return absl::FindCommandLineFlag(name)->ParseFrom(value, &error);
}

class ReportTest : public testing::Test {
 protected:
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
  Console console_{in_, out_, err_};
};

TEST_F(ReportTest, NamesCommandCodeAndMessage) {
  EXPECT_EQ(ReportError("generate", absl::NotFoundError("no model x"), &console_), kFailure);
  EXPECT_EQ(err_.str(), "tlm: generate: NOT_FOUND: no model x\n");
}

// With these details.
absl::Status WithDetails(grpc::StatusCode code, const std::string& message,
                         const google::rpc::BadRequest& bad_request, const std::string& reason = "",
                         int retry_seconds = 0) {
  google::rpc::Status details;
  details.add_details()->PackFrom(bad_request);
  if (!reason.empty()) {
    details.add_details()->PackFrom(Proto<google::rpc::ErrorInfo>("reason: '" + reason + "'"));
    details.add_details()->PackFrom(Proto<google::rpc::RetryInfo>(
        "retry_delay { seconds: " + std::to_string(retry_seconds) + " }"));
  }
  return client::FromGrpcStatus(grpc::Status(code, message, details.SerializeAsString()));
}

TEST_F(ReportTest, AddsViolationsReasonAndRetryAndNothingTwice) {
  ReportError("generate",
              WithDetails(grpc::StatusCode::RESOURCE_EXHAUSTED, "the queue is full",
                          Proto<google::rpc::BadRequest>(
                              "field_violations { field: 'sampling.top_p' description: 'is 1.5' }"),
                          "QUEUE_FULL", 2),
              &console_);
  EXPECT_EQ(err_.str(),
            "tlm: generate: RESOURCE_EXHAUSTED: the queue is full (QUEUE_FULL)\n"
            "  sampling.top_p: is 1.5\n"
            "  try again in 2s\n");
  err_.str("");
  ReportError("generate",
              WithDetails(grpc::StatusCode::INVALID_ARGUMENT, "top_p is 1.5",
                          Proto<google::rpc::BadRequest>(
                              "field_violations { description: 'top_p is 1.5' }")),
              &console_);
  EXPECT_EQ(err_.str(), "tlm: generate: INVALID_ARGUMENT: top_p is 1.5\n");
}

TEST_F(ReportTest, KeepsServerTextOnOneHarmlessLine) {
  ReportError("info", absl::InternalError("a\nb\x1b[2J"), &console_);
  EXPECT_EQ(err_.str(), "tlm: info: INTERNAL: a b\\x1b[2J\n");
}

// As gRPC writes it when no connection could be made.
absl::Status NoConnection(const std::string& reason) {
  return absl::UnavailableError("failed to connect to all addresses; last error: UNKNOWN: " +
                                reason);
}

TEST_F(ReportTest, HintsThatTheServerMayExpectTls) {
  for (const char* reason : {"ipv4:127.0.0.1:1: Socket closed", "Connection reset by peer"}) {
    err_.str("");
    ReportError("info", NoConnection(reason), &console_);
    EXPECT_THAT(err_.str(), EndsWith("\n  the server may expect TLS: see --tls and --ca_file\n"));
  }
}

TEST_F(ReportTest, HintsThatTheServerMayNotSpeakTls) {
  const absl::FlagSaver saver;
  ASSERT_TRUE(SetFlag("ca_file", "ca.pem"));
  ReportError("info", NoConnection("Ssl handshake failed: SSL_ERROR_SSL: wrong version number"),
              &console_);
  EXPECT_THAT(err_.str(), HasSubstr("\n  the server may not speak TLS: leave out --tls"));
}

TEST_F(ReportTest, HintsAtTheFlagOfAFailedHandshake) {
  const absl::FlagSaver saver;
  ASSERT_TRUE(SetFlag("tls", "true"));
  for (const auto& [reason, flag] : {
           std::pair("ipv4:127.0.0.1:1: Peer name 127.0.0.1 is not in peer certificate",
                     " --server_name\n"),
           std::pair("Ssl handshake failed: SSL_ERROR_SSL: certificate verify failed",
                     " --ca_file\n"),
           std::pair("ipv4:127.0.0.1:1: Socket closed", " --client_cert and --client_key, "),
           std::pair("Connection reset by peer", " --client_cert and --client_key, "),
       }) {
    err_.str("");
    ReportError("info", NoConnection(reason), &console_);
    EXPECT_THAT(err_.str(), HasSubstr(flag)) << reason;
    EXPECT_EQ(std::ranges::count(err_.str(), '\n'), 2) << err_.str();
  }
}

TEST_F(ReportTest, NamesTheTimeLimitThatEndedACall) {
  ReportError("health", absl::DeadlineExceededError("Deadline Exceeded"), &console_);
  EXPECT_THAT(err_.str(), EndsWith("\n  the time limit of this program ended the call; "
                                   "--timeout sets it\n"));
  const absl::FlagSaver saver;
  ASSERT_TRUE(SetFlag("timeout", "5ms"));
  ReportError("info", absl::DeadlineExceededError("Deadline Exceeded"), &console_);
  EXPECT_THAT(err_.str(), EndsWith("\n  the time limit of this program ended the call: "
                                   "--timeout=5ms\n"));
  err_.str("");
  ReportError("info", absl::DeadlineExceededError("the deadline passed in the queue"), &console_);
  EXPECT_THAT(err_.str(), EndsWith("in the queue\n"));
}

TEST_F(ReportTest, HintsAtNothingElse) {
  ReportError("info", absl::UnavailableError("Socket closed"), &console_);
  ReportError("info", NoConnection("Connection refused"), &console_);
  ReportError("generate",
              absl::UnavailableError(
                  "the stream broke (UNAVAILABLE: Socket closed), and no replica continued it "
                  "within 10s: failed to connect to all addresses; last error: UNKNOWN: "
                  "ipv4:127.0.0.1:1: Connection refused"),
              &console_);
  ReportError("info", absl::InternalError("failed to connect: Socket closed"), &console_);
  const absl::FlagSaver saver;
  ASSERT_TRUE(SetFlag("tls", "true"));
  ReportError("info", NoConnection("Connection refused"), &console_);
  EXPECT_THAT(err_.str(), Not(HasSubstr("the server may")));
}

TEST_F(ReportTest, ReportsUsage) {
  EXPECT_EQ(ReportUsage("info", "takes no arguments", &console_), kUsageError);
  EXPECT_EQ(ReportUsage("", "no command", &console_), kUsageError);
  EXPECT_EQ(err_.str(), "tlm: info: takes no arguments\ntlm: no command\n");
}

TEST_F(ReportTest, PrintsJsonOnOneLineWithProtoNames) {
  PrintJson(Proto<v1::GenerateResponse>(R"(tokens { text: "a\nb" tokens { id: 7 } })"), out_);
  EXPECT_THAT(out_.str(), HasSubstr("\"output_index\":0"));
  EXPECT_THAT(out_.str(), HasSubstr("\"text\":\"a\\nb\""));
  EXPECT_THAT(out_.str(), Not(HasSubstr("logprob")));
  EXPECT_EQ(out_.str().find('\n'), out_.str().size() - 1);
}

}  // namespace
}  // namespace tlm::cli
