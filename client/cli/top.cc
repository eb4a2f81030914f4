#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/report.h"
#include "client/cli/base/terminal.h"
#include "client/cli/load_monitor.h"
#include "client/cli/top_view.h"
#include "client/cpp/cancel_token.h"
#include "client/cpp/client_context.h"

ABSL_DECLARE_FLAG(bool, once);
ABSL_DECLARE_FLAG(std::string, admin_target);

namespace tlm::cli {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
// Where --timeout says nothing: who takes longer cannot be reached.
constexpr absl::Duration kAnswerTime = absl::Seconds(3);
// How soon an answer, or another size of the terminal, shows.
constexpr absl::Duration kRedrawTime = absl::Milliseconds(200);

// While one of these lives, the first SIGINT or SIGTERM makes `descriptor` readable and cancels the
// token. Later ones do nothing: the program is about to give the terminal back. Otherwise as
// SignalThread.
class SignalPipe {
 public:
  SignalPipe() : thread_([this](int signal) { OnSignal(signal); }) {}

  client::CancelToken* token() { return &token_; }
  int descriptor() const { return ends_.read; }
  // The exit code of a program that a signal ended, 128 + its number; 0 if none came.
  int exit_code() const { return signal_ == 0 ? 0 : 128 + signal_; }

 private:
  struct Ends {
    Ends() {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) == 0) {
        read = ends[0];
        write = ends[1];
      }
    }
    ~Ends() {
      close(read);
      close(write);
    }
    int read = -1;
    int write = -1;
  };

  void OnSignal(int signal) {
    if (signal_ != 0) return;
    signal_ = signal;
    token_.Cancel();
    [[maybe_unused]] const ssize_t written = write(ends_.write, "s", 1);
  }

  client::CancelToken token_;
  Ends ends_;
  std::atomic<int> signal_{0};
  SignalThread thread_;
};

bool SpeaksUtf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string_view locale = value;
    for (const std::string_view name : {"UTF-8", "utf-8", "UTF8", "utf8"}) {
      if (locale.find(name) != std::string_view::npos) return true;
    }
    return false;
  }
  return false;
}

bool CanDraw(const Console& console) {
  const char* terminal = std::getenv("TERM");
  return console.out_is_terminal && terminal != nullptr && std::string_view(terminal) != "dumb" &&
         *terminal != '\0';
}

int PrintOnce(LoadMonitor* monitor, const SignalPipe& signals, Console* console) {
  monitor->AskOnce();
  if (signals.exit_code() != 0) return signals.exit_code();
  const std::vector<ServerLoad> servers = monitor->Loads();
  PrintTopTable(servers, console->out);
  console->out.flush();
  int code = kSuccess;
  for (const ServerLoad& server : servers) {
    if (server.status.ok()) continue;
    code = ReportError("top: " + server.target, server.status, console);
  }
  return code;
}

int ShowLive(LoadMonitor* monitor, const SignalPipe& signals, const Console& console) {
  monitor->Start(kInterval);
  const bool unicode = SpeaksUtf8();
  TerminalScreen screen(console.in_is_terminal ? STDIN_FILENO : -1, STDOUT_FILENO);
  while (true) {
    screen.Draw(
        TopLines(monitor->Loads(), client::MonotonicNow(), {screen.size(), unicode, absl::Now()}));
    char key = 0;
    switch (screen.Wait(kRedrawTime, signals.descriptor(), &key)) {
      case TerminalScreen::Event::kWake:
        return signals.exit_code();
      case TerminalScreen::Event::kClosed:
        return kSuccess;
      case TerminalScreen::Event::kKey:
        if (key == 'q' || key == 'Q') return kSuccess;
        break;
      case TerminalScreen::Event::kNone:
        break;
    }
  }
}

}  // namespace

int RunTop(const Arguments& arguments, Console* console) {
  if (!arguments.empty()) return ReportUsage("top", "takes no arguments", console);
  const std::vector<std::string> targets = SplitTargets(absl::GetFlag(FLAGS_admin_target));
  if (targets.empty()) {
    return ReportUsage("top", "needs --admin_target, the host:port of a server's --admin_port",
                       console);
  }
  const auto client_options = ClientOptionsFromFlags(console);
  if (!client_options.ok()) return ReportError("top", client_options.status(), console);
  SignalPipe signals;
  const auto monitor = LoadMonitor::Create(
      targets, *client_options, std::min(TimeoutFromFlags(), kAnswerTime), signals.token());
  if (!monitor.ok()) return ReportError("top", monitor.status(), console);
  const bool once = absl::GetFlag(FLAGS_once) || !CanDraw(*console);
  return once ? PrintOnce(monitor->get(), signals, console)
              : ShowLive(monitor->get(), signals, *console);
}

}  // namespace tlm::cli
