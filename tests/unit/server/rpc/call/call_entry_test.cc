#include "server/rpc/call/call_entry.h"

#include <gtest/gtest.h>

namespace tlm {
namespace {

TEST(PeerAddressTest, IsTheAddressWithoutPort) {
  EXPECT_EQ(PeerAddress("ipv4:10.0.0.1:4711"), "10.0.0.1");
  EXPECT_EQ(PeerAddress("ipv6:%5B2001:db8::1%5D:4711"), "2001:db8::1");
  EXPECT_EQ(PeerAddress("ipv6:[::1]:4711"), "::1");
}

TEST(PeerAddressTest, OfOtherTransportsIsTheirKind) {
  EXPECT_EQ(PeerAddress("unix:/run/tlm.sock"), "unix");
  EXPECT_EQ(PeerAddress("inproc"), "inproc");
  EXPECT_EQ(PeerAddress(""), "");
}

TEST(PeerAddressTest, TakesAnyText) {
  EXPECT_EQ(PeerAddress("ipv4:"), "");
  EXPECT_EQ(PeerAddress("ipv4:10.0.0.1"), "10.0.0.1");
  EXPECT_EQ(PeerAddress("ipv6:%5B%5D:1"), "");
}

}  // namespace
}  // namespace tlm
