// Pieces of the routes that need no server: the caller's head, the page's policy, the token rate.
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "client/openai/routes/caller.h"
#include "client/openai/routes/front_metrics.h"
#include "client/openai/routes/page.h"

namespace tlm::openai {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

absl::StatusOr<Caller> CallerWith(const std::map<std::string, std::string>& headers,
                                  const std::string& own_key = "", bool passes_keys = true) {
  HttpRequest request;
  request.headers = headers;
  return CallerOf(request, own_key, passes_keys);
}

TEST(CallerTest, KeysAndTracesArePassedOn) {
  EXPECT_THAT(CallerWith({{"authorization", "bearer k"}, {"traceparent", "00-1"}})->metadata,
              ElementsAre(Pair("authorization", "Bearer k"), Pair("traceparent", "00-1")));
  EXPECT_THAT(CallerWith({}, "own")->metadata, ElementsAre(Pair("authorization", "Bearer own")));
  EXPECT_THAT(CallerWith({{"authorization", "Bearer k"}}, "own")->metadata,
              ElementsAre(Pair("authorization", "Bearer k")));
  EXPECT_THAT(CallerWith({{"authorization", "Bearer k"}}, "own", false)->metadata, IsEmpty());
}

TEST(CallerTest, WhatGrpcCannotCarryIsRefusedOrDropped) {
  EXPECT_TRUE(absl::IsUnauthenticated(CallerWith({{"authorization", "Basic k"}}).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(CallerWith({{"authorization", "Bearer \x80"}}).status()));
  EXPECT_TRUE(absl::IsUnauthenticated(CallerWith({{"authorization", "Bearer a\nb"}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(CallerWith({{"x-request-id", "\x7f"}}).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(CallerWith({{"x-request-id", std::string(129, 'a')}}).status()));
  EXPECT_THAT(CallerWith({{"traceparent", "\x01"}})->metadata, IsEmpty());
}

TEST(CallerTest, ARequestHasAnId) {
  EXPECT_EQ(CallerWith({{"x-request-id", "mine"}})->request_id, "mine");
  EXPECT_NE(CallerWith({})->request_id, CallerWith({})->request_id);
}

TEST(PageTest, ThePolicyAllowsTheScriptsAndStylesOfThePageAlone) {
  const std::string policy =
      SecurityPolicyOf("<html><style>p{}</style><script>a</script><script>a</script></html>");
  EXPECT_THAT(policy, HasSubstr("default-src 'none'; "));
  EXPECT_THAT(
      policy,
      HasSubstr("script-src 'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs=' 'sha256-"));
  EXPECT_THAT(policy,
              HasSubstr("style-src 'sha256-gG2yISYereRMiG2lMXrbiUgi0Ubw9p7QCeWcroOvy9Y=';"));
  EXPECT_THAT(SecurityPolicyOf("<p>"), HasSubstr("script-src 'none'; style-src 'none';"));
}

TEST(FrontMetricsTest, TheTokenRateCoversTheLastWholeSeconds) {
  FrontMetrics metrics;
  const absl::Time start = absl::FromUnixSeconds(1000);
  for (int second = 0; second < 10; ++second) {
    metrics.NoteTokens(20, start + absl::Seconds(second));
  }
  EXPECT_EQ(metrics.TokensPerSecond(start + absl::Seconds(10)), 20);
  EXPECT_EQ(metrics.TokensPerSecond(start + absl::Seconds(12)), 12);
  EXPECT_EQ(metrics.TokensPerSecond(start + absl::Seconds(60)), 0);
}

}  // namespace
}  // namespace tlm::openai
