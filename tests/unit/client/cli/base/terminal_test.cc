#include "client/cli/base/terminal.h"

#include <gtest/gtest.h>

namespace tlm::cli {
namespace {

TEST(StyledLineTest, PutsSequencesAroundWhatIsEmphasised) {
  StyledLine line("a");
  line.Add("b", Style::kBold).Add("c");
  EXPECT_EQ(line.ForTerminal(80), "a\x1b[1mb\x1b[0mc");
  EXPECT_EQ(line.text(), "abc");
  EXPECT_EQ(line.width(), 3u);
}

TEST(StyledLineTest, CutsAtTheRightEdge) {
  StyledLine line("abcd");
  line.Add("efghij", Style::kBad);
  EXPECT_EQ(line.ForTerminal(8), "abcd\x1b[31me...\x1b[0m");
  EXPECT_EQ(line.ForTerminal(4), "abcd");
  EXPECT_EQ(line.ForTerminal(2), "..");
  EXPECT_EQ(line.ForTerminal(0), "");
}

TEST(StyledLineTest, LetsNoTextDriveTheTerminal) {
  EXPECT_EQ(StyledLine("a\x1b[2J\nb\tc").ForTerminal(80), "a\\x1b[2J b c");
}

TEST(StyledLineTest, CountsColumnsNotBytes) {
  EXPECT_EQ(StyledLine("日本").width(), 4u);
  EXPECT_EQ(StyledLine("▁▂▃").ForTerminal(3), "▁▂▃");
}

}  // namespace
}  // namespace tlm::cli
