#include "server/rpc/call/status_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "model/base/errors.h"

namespace tlm {
namespace {

using ::testing::EndsWith;
using ::testing::IsEmpty;

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(StatusMappingTest, OkStaysOk) { EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok()); }

TEST(StatusMappingTest, KeepsEveryCodeAndItsMessage) {
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(status.error_message(), "why");
    EXPECT_THAT(status.error_details(), IsEmpty());
  }
}

TEST(StatusMappingTest, AFieldBecomesABadRequest) {
  const grpc::Status status =
      ToGrpcStatus(WithField(InvalidArgument("sampling.top_p is 0"), "sampling.top_p"));
  const google::rpc::Status details = DetailsOf(status);
  EXPECT_EQ(details.code(), 3);
  EXPECT_EQ(details.message(), "sampling.top_p is 0");
  ASSERT_EQ(details.details_size(), 1);
  google::rpc::BadRequest bad_request;
  ASSERT_TRUE(details.details(0).UnpackTo(&bad_request));
  ASSERT_EQ(bad_request.field_violations_size(), 1);
  EXPECT_EQ(bad_request.field_violations(0).field(), "sampling.top_p");
  EXPECT_EQ(bad_request.field_violations(0).description(), "sampling.top_p is 0");
}

TEST(StatusMappingTest, ReasonAndRetryBecomeErrorInfoAndRetryInfo) {
  const grpc::Status status = ToGrpcStatus(WithRetryAfter(
      WithReason(ResourceExhausted("full"), "QUEUE_FULL"), absl::Milliseconds(1500)));
  const google::rpc::Status details = DetailsOf(status);
  ASSERT_EQ(details.details_size(), 2);
  google::rpc::ErrorInfo info;
  ASSERT_TRUE(details.details(0).UnpackTo(&info));
  EXPECT_EQ(info.reason(), "QUEUE_FULL");
  EXPECT_EQ(info.domain(), "tlm");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(details.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 1);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

TEST(StatusMappingTest, CutsLongMessagesBetweenCharacters) {
  // Two-byte characters at odd offsets: a cut at the limit would split one.
  std::string message = "x";
  while (message.size() < 2 * kMaxStatusMessageBytes) message += "\xc3\xa9";
  const grpc::Status status = ToGrpcStatus(WithField(InvalidArgument("{}", message), "prompt"));
  EXPECT_LE(status.error_message().size(), static_cast<size_t>(kMaxStatusMessageBytes));
  EXPECT_THAT(status.error_message(), EndsWith("\xc3\xa9..."));
  EXPECT_EQ(DetailsOf(status).message(), status.error_message());
}

}  // namespace
}  // namespace tlm
