// `tlm chat` at a terminal: the real binary on a pseudo-terminal, a server in this process.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/client/fake_server.h"

extern char** environ;

namespace tlm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kCtrlC[] = "\x03";
constexpr char kCtrlD[] = "\x04";

class ChatTerminalTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* bin_dir = std::getenv("TLM_BIN_DIR");
    ASSERT_NE(bin_dir, nullptr) << "TLM_BIN_DIR is set by CTest";
    binary_ = std::string(bin_dir) + "/tlm";
    server_.model_info.responses.resize(1);
    server_.model_info.responses[0].mutable_identity()->set_model_id("demo");
    server_.model_info.responses[0].mutable_capabilities()->set_chat(true);
    server_.generate.responses = GenerateScript({"Once", " upon"});
  }

  void TearDown() override {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
    if (terminal_ >= 0) close(terminal_);
  }

  // The next call sends this much and stays open.
  void AddHeldAnswer(const std::vector<std::string>& texts) {
    Script<v1::GenerateResponse>& script = server_.generates.emplace_back();
    script.responses = GenerateScript(texts);
    script.responses.resize(1 + texts.size());
    script.hold = true;
  }

  void Start(const std::vector<std::string>& flags = {}) {
    std::vector<std::string> args = {binary_, "chat", "--target=" + server_.target()};
    args.insert(args.end(), flags.begin(), flags.end());
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal_, 0);
    ASSERT_EQ(grantpt(terminal_), 0);
    ASSERT_EQ(unlockpt(terminal_), 0);
    // The first terminal that the leader of a session opens becomes the session's: Ctrl-C reaches
    // it.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, ptsname(terminal_), O_RDWR, 0);
    posix_spawn_file_actions_adddup2(&actions, 0, 1);
    posix_spawn_file_actions_adddup2(&actions, 0, 2);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }

  void Type(const std::string& text) {
    ASSERT_EQ(write(terminal_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  // Starts the program and waits for its prompt.
  void StartToPrompt(const std::vector<std::string>& flags = {}) {
    Start(flags);
    WaitFor("> ");
  }
  // Types a line and waits for what it is answered with.
  void Say(const std::string& line, const std::string& answer) {
    Type(line + "\n");
    WaitFor(answer);
  }

  // Reads on until `text` was shown after what earlier calls waited for.
  void WaitFor(const std::string& text) {
    size_t found;
    while ((found = shown_.find(text, seen_)) == std::string::npos) {
      ASSERT_TRUE(ReadMore()) << "no \"" << text << "\" after: " << shown_;
    }
    seen_ = found + text.size();
  }

  // Waits for the end of the program; its exit code, -1 unless it exited by itself.
  int ExitCode() {
    while (ReadMore()) {
    }
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::vector<std::string> Said(size_t request) const {
    const v1::GenerateRequest sent = server_.generate_requests().at(request);
    std::vector<std::string> said;
    for (const auto& message : sent.chat().messages()) {
      said.push_back(message.role() + ": " + message.content());
    }
    return said;
  }

  FakeServer server_;
  std::string binary_;
  std::string shown_;

 private:
  // False at the end, and when nothing comes for half a minute.
  bool ReadMore() {
    pollfd ready = {terminal_, POLLIN, 0};
    char buffer[256];
    if (poll(&ready, 1, 30'000) <= 0) return false;
    const ssize_t count = read(terminal_, buffer, sizeof(buffer));
    if (count <= 0) return false;
    shown_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  pid_t pid_ = -1;
  int terminal_ = -1;
  size_t seen_ = 0;
};

TEST_F(ChatTerminalTest, PromptsForEachLine) {
  Start();
  WaitFor("demo listens.");
  WaitFor("> ");
  Say("hi", "Once upon\r\n> ");
  Say("more", "Once upon\r\n> ");
  Type(kCtrlD);
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(Said(1), ElementsAre("user: hi", "assistant: Once upon", "user: more"));
}

TEST_F(ChatTerminalTest, CommandsWithoutAnAnswerAreConfirmed) {
  StartToPrompt();
  for (const auto& [command, done] : {std::pair("/reset", "a new conversation begins"),
                                      std::pair("/seed 5", "every answer has the seed 5"),
                                      std::pair("/seed", "every answer has a new seed"),
                                      std::pair("/system be brief", "the system message is set"),
                                      std::pair("/system", "there is no system message")}) {
    Say(command, "\x1b[2m" + std::string(done) + "\x1b[0m\r\n> ");
  }
  Type(kCtrlD);
  EXPECT_EQ(ExitCode(), 0);
}

TEST_F(ChatTerminalTest, CtrlCStopsTheAnswerAndKeepsWhatWasSaid) {
  AddHeldAnswer({"Hel", "lo"});
  StartToPrompt();
  Say("hi", "Hello");
  Type(kCtrlC);
  server_.WaitForCancellation();
  WaitFor("\r\n> ");
  Say("more", "Once upon\r\n> ");
  Type("/quit\n");
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(Said(1), ElementsAre("user: hi", "assistant: Hello", "user: more"));
  EXPECT_THAT(shown_, Not(HasSubstr("CANCELLED")));
}

TEST_F(ChatTerminalTest, CtrlCBeforeTheAnswerTakesTheMessageBack) {
  AddHeldAnswer({});
  StartToPrompt();
  Type("hi\n");
  server_.WaitForHold();
  Type(kCtrlC);
  WaitFor("the message was taken back");
  WaitFor("> ");
  Say("again", "Once upon");
  EXPECT_THAT(Said(1), ElementsAre("user: again"));
}

TEST_F(ChatTerminalTest, SecondCtrlCLeaves) {
  AddHeldAnswer({"Hello"});
  StartToPrompt();
  Say("hi", "Hello");
  Type(kCtrlC);
  WaitFor("> ");
  Type(kCtrlC);
  EXPECT_EQ(ExitCode(), 130);
}

TEST_F(ChatTerminalTest, CtrlCAtThePromptRemindsFirst) {
  StartToPrompt();
  Type(std::string("half a li") + kCtrlC);
  WaitFor("Ctrl-C again or Ctrl-D leaves.\r\n> ");
  Say("hi", "Once upon\r\n> ");
  EXPECT_THAT(Said(0), ElementsAre("user: hi"));
  Type(kCtrlC);
  WaitFor("Ctrl-C again or Ctrl-D leaves.\r\n> ");
  Type(kCtrlC);
  EXPECT_EQ(ExitCode(), 130);
}

TEST_F(ChatTerminalTest, GoesOnAfterFailures) {
  server_.generates.resize(2);
  server_.generates[0].status = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "queue full");
  server_.generates[1].status = grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "no more");
  StartToPrompt();
  Say("hi", "RESOURCE_EXHAUSTED: queue full");
  WaitFor("> ");
  Say("hi", "FAILED_PRECONDITION: no more");
  EXPECT_EQ(ExitCode(), 1);
}

TEST_F(ChatTerminalTest, RefusesModelWithoutTemplateBeforeTheFirstPrompt) {
  server_.model_info.responses[0].mutable_capabilities()->set_chat(false);
  Start();
  EXPECT_EQ(ExitCode(), 1);
  EXPECT_THAT(shown_, HasSubstr("tlm: chat: FAILED_PRECONDITION: model demo has no chat template"));
  EXPECT_THAT(shown_, Not(HasSubstr("> ")));
}

TEST_F(ChatTerminalTest, DisarmsControlCharacters) {
  server_.generate.responses = GenerateScript({"\x1b[2J"});
  StartToPrompt({"--once"});
  Say("hi", "\\x1b[2J");
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(shown_, Not(HasSubstr("\x1b")));
}

class ChatToolsTerminalTest : public ChatTerminalTest {
 protected:
  void SetUp() override {
    ChatTerminalTest::SetUp();
    server_.model_info.responses[0].mutable_capabilities()->mutable_chat_format()->set_tool_format(
        "hermes");
    path_ = testing::TempDir() + "/tools_XXXXXX";
    close(mkstemp(path_.data()));
    std::ofstream(path_)
        << R"([{"name": "add"}, {"name": "wait", "exec": "echo wait >&2; sleep 1000"}])";
  }
  void TearDown() override {
    ChatTerminalTest::TearDown();
    unlink(path_.c_str());
  }

  std::string path_;
};

TEST_F(ChatToolsTerminalTest, AsksForResults) {
  server_.generates.emplace_back().responses =
      RegionScript({{v1::REGION_KIND_REASONING, "I add."},
                    {v1::REGION_KIND_TOOL_CALL, "{\"a\":1}", "add"},
                    {v1::REGION_KIND_TOOL_CALL, "{}", "wait"}});
  StartToPrompt({"--tools=" + path_});
  Say("1 + 2?", "\x1b[2mI add.\x1b[0m\r\n\x1b[1madd\x1b[0m({\"a\":1})\r\n");
  WaitFor("result of add> ");
  Type(kCtrlC);
  WaitFor("Ctrl-C again or Ctrl-D leaves.\r\nresult of add> ");
  Say("3", "result of wait> ");
  Say("done", "Once upon\r\n> ");
  Type(kCtrlD);
  EXPECT_EQ(ExitCode(), 0);
  EXPECT_THAT(Said(1), ElementsAre("user: 1 + 2?", "assistant: ", "tool: 3", "tool: done"));
}

TEST_F(ChatToolsTerminalTest, CtrlCStopsACommand) {
  server_.generates.emplace_back().responses =
      RegionScript({{v1::REGION_KIND_TOOL_CALL, "{}", "wait"}});
  StartToPrompt({"--tools=" + path_, "--run_tools"});
  Say("hi", "wait\r\n");
  Type(kCtrlC);
  WaitFor("stopped; the message was taken back");
  WaitFor("> ");
  Say("again", "Once upon");
  EXPECT_THAT(Said(1), ElementsAre("user: again"));
}

TEST_F(ChatToolsTerminalTest, CtrlCWithinACallKeepsTheTextAlone) {
  Script<v1::GenerateResponse>& script = server_.generates.emplace_back();
  script.responses = RegionScript(
      {{v1::REGION_KIND_TEXT, "I look."}, {v1::REGION_KIND_TOOL_CALL, "{\"a\"", "add", false}});
  script.responses.resize(3);
  script.responses[2].mutable_tokens()->mutable_regions()->RemoveLast();
  script.hold = true;
  StartToPrompt({"--tools=" + path_});
  Say("hi", "({\"a\"");
  Type(kCtrlC);
  WaitFor("\r\n> ");
  Say("more", "Once upon\r\n> ");
  EXPECT_THAT(Said(1), ElementsAre("user: hi", "assistant: I look.", "user: more"));
  EXPECT_EQ(server_.generate_requests()[1].chat().messages(1).tool_calls_size(), 0);
}

TEST_F(ChatTerminalTest, CtrlCEndsOneShot) {
  AddHeldAnswer({"Hello"});
  Start({"hi"});
  WaitFor("Hello");
  Type(kCtrlC);
  EXPECT_EQ(ExitCode(), 130);
  EXPECT_THAT(shown_, HasSubstr("tlm: chat: interrupted"));
}

}  // namespace
}  // namespace tlm
