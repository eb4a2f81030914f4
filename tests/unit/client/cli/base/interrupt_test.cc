// Signals to the real `tlm` binary, while a server in this process holds its call.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/unit/client/fake_server.h"

extern char** environ;

namespace tlm {
namespace {

class InterruptTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* bin_dir = std::getenv("TLM_BIN_DIR");
    ASSERT_NE(bin_dir, nullptr) << "TLM_BIN_DIR is set by CTest";
    binary_ = std::string(bin_dir) + "/tlm";
    server_.generate.responses = GenerateScript({"Once"});
    server_.generate.responses.resize(2);
    server_.generate.hold = true;
  }

  // Starts `tlm words...`, both its outputs into one pipe, its input from another.
  pid_t Start(const std::vector<std::string>& words) {
    std::vector<std::string> args = {binary_};
    args.insert(args.end(), words.begin(), words.end());
    args.push_back("--target=" + server_.target());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    int pipe_ends[2];
    EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    output_ = pipe_ends[0];
    int input_ends[2];
    EXPECT_EQ(pipe2(input_ends, O_CLOEXEC), 0);
    input_ = input_ends[1];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input_ends[0], 0);
    posix_spawn_file_actions_adddup2(&actions, pipe_ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t pid = -1;
    EXPECT_EQ(posix_spawn(&pid, binary_.c_str(), &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(pipe_ends[1]);
    close(input_ends[0]);
    return pid;
  }

  // -1 unless it exited by itself.
  static int ExitCode(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void TearDown() override { ClosePipes(); }

  void ClosePipes() {
    if (output_ >= 0) close(output_);
    if (input_ >= 0) close(input_);
    output_ = input_ = -1;
  }

  // The next `count` bytes of the outputs, fewer only at their end.
  std::string Read(size_t count) const {
    std::string text;
    char byte;
    while (text.size() < count && read(output_, &byte, 1) == 1) text += byte;
    return text;
  }

  FakeServer server_;
  std::string binary_;
  int output_ = -1;
  int input_ = -1;
};

TEST_F(InterruptTest, CtrlCCancelsTheCall) {
  const pid_t pid = Start({"generate", "p"});
  EXPECT_EQ(Read(4), "Once");
  ASSERT_EQ(kill(pid, SIGINT), 0);
  EXPECT_EQ(ExitCode(pid), 130);
  server_.WaitForCancellation();
  EXPECT_EQ(Read(1000), "\ntlm: generate: interrupted\n");
}

TEST_F(InterruptTest, TerminationCancelsTheCall) {
  const pid_t pid = Start({"generate", "p"});
  server_.WaitForHold();
  ASSERT_EQ(kill(pid, SIGTERM), 0);
  EXPECT_EQ(ExitCode(pid), 143);
  server_.WaitForCancellation();
}

// The conversation is not interactive.
TEST_F(InterruptTest, CtrlCEndsPipedChatInMidAnswer) {
  const pid_t pid = Start({"chat"});
  ASSERT_EQ(write(input_, "hi\nmore\n", 8), 8);
  EXPECT_EQ(Read(4), "Once");
  ASSERT_EQ(kill(pid, SIGINT), 0);
  EXPECT_EQ(ExitCode(pid), 130);
  EXPECT_EQ(Read(1000), "\ntlm: chat: interrupted\n");
  EXPECT_EQ(server_.generate_requests().size(), 1u);
}

TEST_F(InterruptTest, SignalsEndPipedChatBetweenAnswers) {
  server_.generate.responses = GenerateScript({"Once\n"});
  server_.generate.hold = false;
  for (const int signal : {SIGINT, SIGTERM}) {
    const pid_t pid = Start({"chat"});
    ASSERT_EQ(write(input_, "hi\n", 3), 3);
    EXPECT_EQ(Read(5), "Once\n");
    ASSERT_EQ(kill(pid, signal), 0);
    EXPECT_EQ(ExitCode(pid), 128 + signal);
    ClosePipes();
  }
}

}  // namespace
}  // namespace tlm
