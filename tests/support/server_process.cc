#include "tests/support/server_process.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace tlm {
namespace {

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  EXPECT_NE(value, nullptr) << name << " is not set: run the test through ctest";
  return value == nullptr ? "" : value;
}

}  // namespace

std::string DemoModelDir() { return Environment("TLM_SOURCE_DIR") + "/model/demo"; }

std::string ServerBinary() { return Environment("TLM_BIN_DIR") + "/tlm-server"; }

std::unique_ptr<ServerProcess> ServerProcess::Serve(const std::vector<std::string>& extra) {
  std::vector<std::string> argv = {ServerBinary(), "--model=" + DemoModelDir(), "--port=0",
                                   "--withdrawal_grace=0s"};
  argv.insert(argv.end(), extra.begin(), extra.end());
  auto server = std::make_unique<ServerProcess>(argv);
  EXPECT_TRUE(server->WaitForOutput(" KV blocks)\n")) << server->output();
  return server;
}

int ServerProcess::port() const {
  constexpr std::string_view kBefore = " on 127.0.0.1:";
  const std::string text = output();
  const size_t at = text.find(kBefore);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + kBefore.size());
}

std::string ServerProcess::address() const { return "127.0.0.1:" + std::to_string(port()); }

ServerRun RunServerToTheEnd(const std::vector<std::string>& arguments) {
  std::vector<std::string> argv = {ServerBinary()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  ServerProcess server(argv);
  ServerRun run;
  run.exit_status = server.Wait();
  run.output = server.output();
  return run;
}

}  // namespace tlm
