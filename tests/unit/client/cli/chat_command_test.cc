#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "client/cli/chat_loop.h"

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using Kind = ChatLine::Kind;

TEST(ParseChatLineTest, TakesOrdinaryLinesAsMessages) {
  for (const char* line : {"hi", " /reset", "a /help", "reset"}) {
    const auto parsed = ParseChatLine(line);
    ASSERT_TRUE(parsed.ok()) << line;
    EXPECT_EQ(parsed->kind, Kind::kMessage);
    EXPECT_EQ(parsed->text, line);
  }
}

TEST(ParseChatLineTest, TakesTwoSlashesAsOneOfAMessage) {
  EXPECT_EQ(ParseChatLine("//etc/hosts?")->text, "/etc/hosts?");
  EXPECT_EQ(ParseChatLine("//")->text, "/");
}

TEST(ParseChatLineTest, KnowsTheCommands) {
  EXPECT_EQ(ParseChatLine("/reset")->kind, Kind::kReset);
  EXPECT_EQ(ParseChatLine("/history \t")->kind, Kind::kHistory);
  EXPECT_EQ(ParseChatLine("/help")->kind, Kind::kHelp);
  EXPECT_EQ(ParseChatLine("/quit")->kind, Kind::kQuit);
  EXPECT_EQ(ParseChatLine("/system  be brief ")->kind, Kind::kSystem);
  EXPECT_EQ(ParseChatLine("/system  be brief ")->text, "be brief");
  EXPECT_EQ(ParseChatLine("/system")->text, "");
  EXPECT_EQ(ParseChatLine("/seed 18446744073709551615")->seed, UINT64_MAX);
  EXPECT_EQ(ParseChatLine("/seed")->seed, std::nullopt);
}

TEST(ParseChatLineTest, RefusesWhatIsNoCommand) {
  for (const std::string& line :
       {std::string("/"), std::string("/resett"), std::string("/RESET"), std::string("/reset now"),
        std::string("/seed -1"), std::string("/seed 1 2"), std::string("/seed x"),
        "/" + std::string(10'000, 'x')}) {
    const auto parsed = ParseChatLine(line);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << line.substr(0, 20);
    EXPECT_LT(parsed.status().message().size(), 200u);
  }
}

TEST(PrintChatHelpTest, NamesEveryCommand) {
  std::ostringstream out;
  PrintChatHelp(out);
  for (const char* command : {"/reset", "/system", "/history", "/seed", "/help", "/quit"}) {
    EXPECT_THAT(out.str(), HasSubstr(command));
  }
}

}  // namespace
}  // namespace tlm::cli
