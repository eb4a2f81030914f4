#include "server/rpc/call/status_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "model/base/errors.h"
#include "tests/support/proto.h"

namespace tlm {
namespace {

using ::testing::EndsWith;
using ::testing::IsEmpty;

google::rpc::Status DetailsOf(const grpc::Status& status) {
  google::rpc::Status details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(StatusMappingTest, KeepsEveryCodeAndItsMessage) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  for (int code = 1; code <= 16; ++code) {
    const grpc::Status status =
        ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(code), "why"));
    EXPECT_EQ(static_cast<int>(status.error_code()), code);
    EXPECT_EQ(status.error_message(), "why");
    EXPECT_THAT(status.error_details(), IsEmpty());
  }
}

TEST(StatusMappingTest, AFieldBecomesABadRequest) {
  EXPECT_THAT(
      DetailsOf(ToGrpcStatus(WithField(InvalidArgument("sampling.top_p is 0"), "sampling.top_p"))),
      IsProto(
          R"(
              code: 3 message: "sampling.top_p is 0"
              details {
                [type.googleapis.com/google.rpc.BadRequest] {
                  field_violations {
                    field: "sampling.top_p" description: "sampling.top_p is 0" } } })"));
}

TEST(StatusMappingTest, ReasonAndRetryBecomeErrorInfoAndRetryInfo) {
  EXPECT_THAT(DetailsOf(ToGrpcStatus(WithRetryAfter(
                  WithReason(ResourceExhausted("full"), "QUEUE_FULL"), absl::Milliseconds(1500)))),
              HasFields(R"(
      details { [type.googleapis.com/google.rpc.ErrorInfo] { reason: "QUEUE_FULL" domain: "tlm" } }
      details { [type.googleapis.com/google.rpc.RetryInfo] {
        retry_delay { seconds: 1 nanos: 500000000 } } })"));
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
