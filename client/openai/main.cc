// tlm-openai: serves OpenAI's HTTP API in front of tlm servers.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "client/cli/base/command_line.h"
#include "client/openai/http/http_server.h"
#include "client/openai/options.h"
#include "client/openai/routes/front.h"
#include "client/openai/routes/router.h"
#include "model/base/descriptor.h"
#include "model/base/message_text.h"

TLM_OPEN_STANDARD_DESCRIPTORS_FIRST;

namespace {

using tlm::openai::Exchange;
using tlm::openai::Front;
using tlm::openai::HttpServer;
using tlm::openai::Options;
using tlm::openai::Router;

int Fail(const absl::Status& status, int code) {
  std::cerr << "tlm-openai: " << tlm::OneLine(std::string(status.message())) << std::endl;
  return code;
}

// Every connection needs a descriptor.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Written at once, so that a reader sees the whole number or none.
bool WritePortFile(const std::string& path, int port) {
  const std::string text = fmt::format("{}\n", port);
  const std::string draft = path + ".new";
  std::FILE* const file = std::fopen(draft.c_str(), "w");
  if (file == nullptr) return false;
  const bool written = std::fputs(text.c_str(), file) >= 0;
  return std::fclose(file) == 0 && written && std::rename(draft.c_str(), path.c_str()) == 0;
}

int Serve(const Options& options, std::vector<std::unique_ptr<tlm::openai::Backend>> backends,
          const sigset_t& ending) {
  Front front(options.front, std::move(backends), absl::ToUnixSeconds(absl::Now()));
  Router router(&front);
  auto server = HttpServer::Start(
      options.http, [&router](const HttpServer& http, std::shared_ptr<Exchange> exchange) {
        router.Handle(http, std::move(exchange));
      });
  if (!server.ok()) return Fail(server.status(), tlm::cli::kFailure);
  const int port = (*server)->port();
  if (!options.port_file.empty() && !WritePortFile(options.port_file, port)) {
    return Fail(absl::UnavailableError(fmt::format("{}: cannot be written", options.port_file)),
                tlm::cli::kFailure);
  }
  const bool ipv6 = options.http.host.find(':') != std::string::npos;
  std::cerr << fmt::format("tlm-openai: serves http{}://{}{}{}:{}/v1\n",
                           options.http.certificate.empty() ? "" : "s", ipv6 ? "[" : "",
                           options.http.host, ipv6 ? "]" : "", port)
            << std::flush;
  int signal = 0;
  sigwait(&ending, &signal);
  router.SetDraining();
  // A second signal ends the program at once.
  std::thread([ending] {
    int second = 0;
    sigwait(&ending, &second);
    std::_Exit(tlm::cli::kFailure);
  }).detach();
  (*server)->Stop(options.drain_timeout);
  if (!options.port_file.empty()) unlink(options.port_file.c_str());
  return tlm::cli::kSuccess;
}

}  // namespace

int main(int argc, char** argv) {
  // gRPC's messages about failed connections are in the status of the call.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  std::signal(SIGPIPE, SIG_IGN);
  // Every thread that starts later blocks them, too.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);

  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments == std::vector<std::string>{"--helpman"}) {
    std::cout << tlm::openai::ManualPage();
    return tlm::cli::kSuccess;
  }
  if (arguments == std::vector<std::string>{"--version"}) {
    std::cout << "tlm-openai " TLM_VERSION "\n";
    return tlm::cli::kSuccess;
  }
  const auto line = tlm::cli::ParseCommandLine(tlm::openai::Program(), arguments);
  if (!line.ok()) return Fail(line.status(), tlm::cli::kUsageError);
  if (line->wants_help) {
    std::cout << tlm::openai::HelpText();
    return tlm::cli::kSuccess;
  }
  if (!line->arguments.empty()) {
    return Fail(absl::InvalidArgumentError(fmt::format("{} is no flag; --help lists them",
                                                       tlm::Quoted(line->arguments.front()))),
                tlm::cli::kUsageError);
  }
  tlm::cli::Console console{std::cin, std::cout, std::cerr};
  auto options = tlm::openai::ReadOptions(&console);
  if (!options.ok()) return Fail(options.status(), tlm::cli::kUsageError);
  auto backends = tlm::openai::ConnectBackends(&console, &options->front);
  if (!backends.ok()) return Fail(backends.status(), tlm::cli::kUsageError);
  RaiseFileLimit();
  return Serve(*options, *std::move(backends), ending);
}
