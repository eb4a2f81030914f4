#include "client/cli/base/shell_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tlm::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

absl::StatusOr<std::string> Output(const std::string& command, const std::string& input = "") {
  return RunShellCommand(command, input, absl::InfiniteDuration(), nullptr);
}

TEST(RunShellCommandTest, PassesInputAndReturnsOutput) {
  EXPECT_EQ(*Output("cat", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(*Output("wc -c < /dev/stdin", std::string(1 << 20, 'x')), "1048576");
  EXPECT_EQ(*Output("printf 'a\\nb\\n\\n'"), "a\nb");
  EXPECT_EQ(*Output("true", "not read"), "");
  EXPECT_EQ(*Output("-v 2>/dev/null; echo end"), "end") << "no option of the shell";
}

TEST(RunShellCommandTest, TellsHowACommandFailed) {
  absl::Status status = Output("echo no; exit 3").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(status.message(), "exit status 3: no");
  EXPECT_EQ(Output("exit 1").status().message(), "exit status 1");
  EXPECT_EQ(Output("kill -9 $$").status().message(), "ended by signal 9");
  EXPECT_THAT(std::string(Output("/nonexistent/tool 2>/dev/null").status().message()),
              StartsWith("exit status 127"));
  status = Output("printf 'a\\377'").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("0xff at offset 1"));
}

TEST(RunShellCommandTest, BoundsTheOutput) {
  EXPECT_EQ(Output("yes").status().code(), absl::StatusCode::kResourceExhausted);
}

// A command that writes its process id to a file and never ends, and one that it started.
class EndlessCommandTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "/endless_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Command(const std::string& before = "") const {
    return before + "sleep 1000 & echo $! > " + folder_ + "/id; mv " + folder_ + "/id " + folder_ +
           "/started; sleep 1000";
  }
  bool started() const { return std::filesystem::exists(folder_ + "/started"); }
  // Whether the process that was started by the command is gone, or about to be.
  bool ended() const {
    std::string state;
    pid_t id = 0;
    std::ifstream(folder_ + "/started") >> id;
    std::ifstream stat("/proc/" + std::to_string(id) + "/stat");
    std::string skipped;
    return !(stat >> skipped >> skipped >> state) || state == "Z" || state == "X";
  }
  void ExpectEnded() const {
    while (!ended()) std::this_thread::yield();
  }

  std::string folder_;
};

TEST_F(EndlessCommandTest, EndsWithAllThatItStartedAtTheTimeout) {
  absl::Duration timeout = absl::Milliseconds(20);
  do {  // Until the shell got as far as to start another one.
    timeout *= 2;
    const absl::Status status = RunShellCommand(Command(), "", timeout, nullptr).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    ASSERT_THAT(std::string(status.message()), HasSubstr(absl::FormatDuration(timeout)));
  } while (!started());
  ExpectEnded();
}

TEST_F(EndlessCommandTest, EndsWhenCancelled) {
  for (const char* before : {"", "exec 1>/dev/null; "}) {
    std::filesystem::remove(folder_ + "/started");
    client::CancelToken cancel;
    std::thread canceller([&] {
      while (!started()) std::this_thread::yield();
      cancel.Cancel();
    });
    EXPECT_EQ(
        RunShellCommand(Command(before), "", absl::InfiniteDuration(), &cancel).status().code(),
        absl::StatusCode::kCancelled);
    canceller.join();
    ExpectEnded();
  }
}

TEST(RunShellCommandCancelTest, StartsNothingLongWhenCancelledBefore) {
  client::CancelToken cancel;
  cancel.Cancel();
  EXPECT_EQ(RunShellCommand("sleep 1000", "", absl::InfiniteDuration(), &cancel).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace tlm::cli
