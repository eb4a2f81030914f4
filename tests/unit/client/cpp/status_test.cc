#include "client/cpp/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/support/proto.h"

namespace tlm::client {
namespace {

grpc::Status WithDetails(const google::rpc::Status& details) {
  return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full", details.SerializeAsString());
}

TEST(StatusTest, KeepsCodeAndMessage) {
  const absl::Status status =
      FromGrpcStatus(grpc::Status(grpc::StatusCode::NOT_FOUND, "no model \"x\""));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(std::string(status.message()), "no model \"x\"");
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(StatusTest, DecodesViolationsReasonAndRetryDelay) {
  google::rpc::Status message;
  message.add_details()->PackFrom(Proto<google::rpc::BadRequest>(R"(
      field_violations { field: "sampling.top_p" description: "is 1.5, the limit is 1" })"));
  message.add_details()->PackFrom(Proto<google::rpc::ErrorInfo>(R"(
      reason: "QUEUE_FULL" domain: "tlm" metadata { key: "limit" value: "64" })"));
  message.add_details()->PackFrom(
      Proto<google::rpc::RetryInfo>("retry_delay { seconds: 1 nanos: 500000000 }"));
  const ErrorDetails details = DetailsOf(FromGrpcStatus(WithDetails(message)));
  ASSERT_EQ(details.violations.size(), 1u);
  EXPECT_EQ(details.violations[0].field, "sampling.top_p");
  EXPECT_EQ(details.violations[0].description, "is 1.5, the limit is 1");
  EXPECT_EQ(details.reason, "QUEUE_FULL");
  EXPECT_EQ(details.domain, "tlm");
  EXPECT_THAT(details.metadata, testing::ElementsAre(testing::Pair("limit", "64")));
  EXPECT_EQ(details.retry_delay, absl::Milliseconds(1500));
}

TEST(StatusTest, LeavesOutDetailsThatItDoesNotKnowOrCannotParse) {
  google::rpc::Status message;
  message.add_details()->set_type_url("type.googleapis.com/some.Other");
  message.add_details()->PackFrom(Proto<google::rpc::ErrorInfo>("reason: 'DRAINING'"));
  EXPECT_EQ(DetailsOf(FromGrpcStatus(WithDetails(message))).reason, "DRAINING");
  message.mutable_details(1)->set_value("\xff\xff\xff");
  EXPECT_EQ(DetailsOf(FromGrpcStatus(WithDetails(message))).reason, "");

  const grpc::Status garbage(grpc::StatusCode::INTERNAL, "x", std::string("\x0a\xff\xff", 3));
  const absl::Status status = FromGrpcStatus(garbage);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(DetailsOf(status).violations.empty());
}

TEST(StatusTest, TakesNegativeRetryDelayAsNone) {
  google::rpc::Status message;
  message.add_details()->PackFrom(Proto<google::rpc::RetryInfo>("retry_delay { seconds: -5 }"));
  EXPECT_EQ(DetailsOf(FromGrpcStatus(WithDetails(message))).retry_delay, absl::ZeroDuration());
}

TEST(StatusTest, HasNoDetailsWithoutPayload) {
  const ErrorDetails details = DetailsOf(absl::InternalError("x"));
  EXPECT_TRUE(details.violations.empty());
  EXPECT_FALSE(details.retry_delay.has_value());
}

TEST(StatusTest, SpellsCodesAsGrpcDoes) {
  EXPECT_EQ(CodeName(absl::StatusCode::kInvalidArgument), "INVALID_ARGUMENT");
  EXPECT_EQ(CodeName(absl::StatusCode::kCancelled), "CANCELLED");
}

}  // namespace
}  // namespace tlm::client
