#include "model/base/program/man_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace tlm {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

ManPage Page(int section = 1) { return ManPage({"a-b", section, "2026-02-28", "tlm 1"}); }

TEST(ManPageTest, BeginsWithItsHead) {
  EXPECT_EQ(Page().text(), ".TH \"A\\-B\" 1 \"2026-02-28\" \"tlm 1\" \"User Commands\"\n");
  EXPECT_THAT(Page(8).text(), EndsWith("8 \"2026-02-28\" \"tlm 1\" \"System Administration\"\n"));
}

TEST(ManPageTest, TakesNothingInATextForARequest) {
  ManPage page = Page();
  page.Section("S");
  page.Text(".so /etc/passwd\n'br \\fB -x \"q\" `~^");
  EXPECT_THAT(page.text(), EndsWith(".SH \"S\"\n\\&.so /etc/passwd \\(aqbr \\efB \\-x \\(dqq\\(dq "
                                    "\\(ga\\(ti\\(ha\n"));
}

TEST(ManPageTest, KeepsExamplesAsTheyAre) {
  ManPage page = Page();
  page.Section("S");
  page.Text("one\ntwo\n\n  .example  a\n  b\nthree");
  EXPECT_THAT(page.text(), EndsWith(".SH \"S\"\none two\n.PP\n.RS 4\n.nf\n\\&.example  a\nb\n.fi\n"
                                    ".RE\n.PP\nthree\n"));
}

TEST(ManPageTest, BreaksLongParagraphsIntoLines) {
  ManPage page = Page();
  std::string words;
  for (int i = 0; i < 100; ++i) words += "word ";
  page.Text(words);
  size_t longest = 0;
  size_t begin = 0;
  for (size_t end; (end = page.text().find('\n', begin)) != std::string::npos; begin = end + 1) {
    longest = std::max(longest, end - begin);
  }
  EXPECT_LE(longest, 80u);
}

TEST(ManPageTest, ListsItems) {
  ManPage page = Page();
  page.Item("--flag", "VALUE", "what it does.");
  page.Item("--switch", "", "x");
  EXPECT_THAT(page.text(), HasSubstr(".TP\n\\fB\\-\\-flag\\fR=\\fIVALUE\\fR\nwhat it does.\n"));
  EXPECT_THAT(page.text(), HasSubstr(".TP\n\\fB\\-\\-switch\\fR\nx\n"));
}

TEST(ManPageTest, BearsTheDateOfTheBuildIfThatIsGiven) {
  setenv("SOURCE_DATE_EPOCH", "951782400", 1);
  EXPECT_EQ(ManPageDate(), "2000-02-29");
  unsetenv("SOURCE_DATE_EPOCH");
  EXPECT_THAT(ManPageDate(), StartsWith("20"));
}

}  // namespace
}  // namespace tlm
