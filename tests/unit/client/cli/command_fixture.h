// Whole commands against a server in this process.
#ifndef TLM_TESTS_UNIT_CLIENT_CLI_COMMAND_FIXTURE_H_
#define TLM_TESTS_UNIT_CLIENT_CLI_COMMAND_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/reflection.h"
#include "absl/strings/str_split.h"
#include "client/cli/base/command.h"
#include "tests/support/proto.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/client/fake_server.h"

namespace tlm::cli {

// A command line, by its words or as a text that spaces divide.
class Line {
 public:
  Line(const char* text) : Line(std::string(text)) {}
  Line(const std::string& text) {
    std::vector<std::string> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
    words_ = std::move(words);
  }
  Line(std::vector<std::string> words) : words_(std::move(words)) {}
  Line(std::initializer_list<std::string> words) : words_(words) {}

  const std::vector<std::string>& words() const { return words_; }
  Line operator+(const Line& more) const {
    std::vector<std::string> words = words_;
    words.insert(words.end(), more.words_.begin(), more.words_.end());
    return words;
  }

 private:
  std::vector<std::string> words_;
};

// Runs the command line on streams of its own.
class CommandTest : public testing::Test {
 protected:
  // Its flags are put back afterwards.
  int RunWithoutTarget(const Line& line) {
    const absl::FlagSaver saver;
    out_.str("");
    err_.str("");
    Console console{in_, out_, err_};
    return RunCommandLine(line.words(), &console);
  }
  // `tlm line... --target=<the server>`.
  int Run(const Line& line) {
    return RunWithoutTarget(line + std::vector<std::string>{target_flag_});
  }

  // Of a command that has ended with `code`: it refused its usage in one line, which says this.
  void ExpectUsageError(int code, const std::string& command, const std::string& message = "") {
    EXPECT_EQ(code, kUsageError);
    EXPECT_THAT(err_.str(), testing::StartsWith("tlm: " + command));
    EXPECT_THAT(err_.str(), testing::HasSubstr(message));
    EXPECT_EQ(err_.str().find('\n'), err_.str().size() - 1) << err_.str();
    EXPECT_EQ(out_.str(), "");
  }
  // The command refuses each of these lines of arguments.
  void ExpectUsageErrors(const std::string& command, const std::vector<Line>& lines) {
    for (const Line& line : lines) {
      SCOPED_TRACE(testing::PrintToString(line.words()));
      ExpectUsageError(Run(Line(command) + line), command + ": ");
    }
  }
  // The path of a file with this content.
  std::string FileWith(std::string_view content) {
    return dir_.Write(std::to_string(files_++), content);
  }

  std::string target_flag_;
  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;

 private:
  const TempDir dir_;
  int files_ = 0;
};

class CommandFixture : public CommandTest {
 protected:
  CommandFixture() { target_flag_ = "--target=" + server_.target(); }

  // With this on standard input.
  int RunWithInput(const std::string& input, const Line& line) {
    in_.clear();
    in_.str(input);
    return Run(line);
  }

  FakeServer server_;
};

}  // namespace tlm::cli

#endif  // TLM_TESTS_UNIT_CLIENT_CLI_COMMAND_FIXTURE_H_
