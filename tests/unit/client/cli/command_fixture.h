// Whole commands against a server in this process.
#ifndef TLM_TESTS_UNIT_CLIENT_CLI_COMMAND_FIXTURE_H_
#define TLM_TESTS_UNIT_CLIENT_CLI_COMMAND_FIXTURE_H_

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "absl/flags/reflection.h"
#include "client/cli/base/command.h"
#include "tests/unit/client/fake_server.h"

namespace tlm::cli {

// Runs the command line on streams of its own.
class CommandTest : public testing::Test {
 protected:
  // Its flags are put back afterwards.
  int RunWithoutTarget(const std::vector<std::string>& args) {
    const absl::FlagSaver saver;
    out_.str("");
    err_.str("");
    Console console{in_, out_, err_};
    return RunCommandLine(args, &console);
  }

  std::istringstream in_;
  std::ostringstream out_;
  std::ostringstream err_;
};

class CommandFixture : public CommandTest {
 protected:
  // `tlm args... --target=<the fake server>`.
  int Run(std::vector<std::string> args) {
    args.push_back("--target=" + server_.target());
    return RunWithoutTarget(args);
  }
  // With this on standard input.
  int RunWithInput(const std::string& input, const std::vector<std::string>& args) {
    in_.clear();
    in_.str(input);
    return Run(args);
  }

  FakeServer server_;
};

}  // namespace tlm::cli

#endif  // TLM_TESTS_UNIT_CLIENT_CLI_COMMAND_FIXTURE_H_
