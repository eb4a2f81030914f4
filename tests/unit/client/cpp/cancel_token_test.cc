#include "client/cpp/cancel_token.h"

#include <gtest/gtest.h>

#include <thread>

namespace tlm::client {
namespace {

TEST(CancelTokenTest, TellsThoseThatRegistered) {
  CancelToken token;
  int early = 0;
  int gone = 0;
  int late = 0;
  const CancelToken::Registration registration(&token, [&early] { ++early; });
  {
    const CancelToken::Registration ended(&token, [&gone] { ++gone; });
  }
  EXPECT_EQ(early, 0);
  token.Cancel();
  EXPECT_EQ(early, 1);
  EXPECT_EQ(gone, 0);
  const CancelToken::Registration afterwards(&token, [&late] { ++late; });
  EXPECT_EQ(late, 1);
}

TEST(CancelTokenTest, IsCancelledWithItsParent) {
  CancelToken parent;
  CancelToken child(&parent);
  CancelToken sibling(&parent);
  { CancelToken gone(&parent); }
  sibling.Cancel();
  EXPECT_FALSE(parent.cancelled());
  EXPECT_FALSE(child.cancelled());
  parent.Cancel();
  EXPECT_TRUE(child.cancelled());
  CancelToken late(&parent);
  EXPECT_TRUE(late.cancelled());
  CancelToken orphan(nullptr);
  EXPECT_FALSE(orphan.cancelled());
}

TEST(CancelTokenTest, WaitEndsWithTimeOrCancellation) {
  CancelToken token;
  EXPECT_FALSE(token.WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE(token.WaitFor(absl::Milliseconds(1)));
  std::thread canceller([&token] { token.Cancel(); });
  EXPECT_TRUE(token.WaitFor(absl::InfiniteDuration()));
  canceller.join();
  EXPECT_TRUE(token.WaitFor(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace tlm::client
