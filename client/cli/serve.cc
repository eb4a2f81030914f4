#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cli/base/command.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

namespace tlm::cli {
namespace {

constexpr char kServer[] = "tlm-server";

// Returns the path of the server beside this program, or its bare name, for a search of PATH.
std::string FindServer() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    const std::filesystem::path beside = program.parent_path() / kServer;
    if (access(beside.c_str(), X_OK) == 0) return beside.string();
  }
  return kServer;
}

// Returns only if the server cannot be started.
absl::StatusOr<int> RunServe(const Arguments& arguments, Console* console) {
  std::string server = FindServer();
  std::vector<char*> words = {server.data()};
  std::vector<std::string> copies = arguments;
  for (std::string& word : copies) words.push_back(word.data());
  words.push_back(nullptr);
  console->out.flush();
  console->err.flush();
  execvp(server.c_str(), words.data());
  return FailedPrecondition("{} cannot be started: {}{}", Quoted(server), std::strerror(errno),
                            server == kServer ? "; it is neither beside tlm nor on PATH" : "");
}

}  // namespace

Command ServeCommand() {
  return {
      .name = "serve",
      .arguments = "[MODEL] [SERVER_FLAGS]",
      .summary = "serve a model: becomes tlm-server with these arguments",
      .details =
          R"(MODEL is a directory or a GGUF file; without any argument it is the bundled model. The server
is the program tlm-server beside tlm, or else the first on PATH. `tlm-server --help` lists
its flags, which are passed on unchanged.

  tlm serve build/qwen3-0.6b --port=50052)",
      .passes_on = true,
      .run = RunServe};
}

}  // namespace tlm::cli
