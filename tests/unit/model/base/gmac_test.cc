#include "model/base/gmac.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/status_matchers.h"

namespace tlm {
namespace {

using ::testing::ElementsAreArray;

GmacTag TagOf(std::string_view bytes, size_t step) {
  Gmac gmac;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(step, bytes.size()))) {
    gmac.Append(bytes.substr(0, step));
  }
  const auto tag = gmac.Finish();
  EXPECT_THAT(tag, IsOk());
  return tag.value_or(GmacTag{});
}

// Test case 1 of the GCM specification (McGrew and Viega, appendix B): no data at all.
TEST(GmacTest, OfNothingIsThePublishedOne) {
  constexpr uint8_t kExpected[] = {0x58, 0xe2, 0xfc, 0xce, 0xfa, 0x7e, 0x30, 0x61,
                                   0x36, 0x7f, 0x1d, 0x57, 0xa4, 0xe7, 0x45, 0x5a};
  EXPECT_THAT(TagOf("", 1), ElementsAreArray(kExpected));
}

TEST(GmacTest, DoesNotDependOnThePieces) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * i % 251);
  const GmacTag whole = TagOf(text, text.size());
  for (const size_t step : {1, 15, 16, 17, 1024}) EXPECT_EQ(TagOf(text, step), whole) << step;
}

TEST(GmacTest, TellsBitsAndLengthsApart) {
  std::string text(100, '\0');
  const GmacTag zeros = TagOf(text, 100);
  EXPECT_NE(TagOf(text + '\0', 200), zeros);
  text[99] = 1;
  EXPECT_NE(TagOf(text, 100), zeros);
}

}  // namespace
}  // namespace tlm
