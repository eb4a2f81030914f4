#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/report.h"
#include "client/cli/base/terminal.h"
#include "client/cli/load_monitor.h"
#include "client/cli/top_view.h"
#include "client/cpp/client_context.h"
#include "model/base/errors.h"

ABSL_DECLARE_FLAG(bool, once);
ABSL_DECLARE_FLAG(std::string, admin_target);

namespace tlm::cli {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
// The longest timeout of a call; a slower server counts as unreachable.
constexpr absl::Duration kMaxTimeout = absl::Seconds(3);
// The longest delay until an answer, a signal or another size of the terminal takes effect.
constexpr absl::Duration kRedrawInterval = absl::Milliseconds(200);

bool SpeaksUtf8() {
  for (const char* variable : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(variable);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = absl::AsciiStrToLower(value);
    return locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  }
  return false;
}

bool CanDraw(const Console& console) {
  const char* terminal = std::getenv("TERM");
  return console.out_is_terminal && terminal != nullptr && std::string_view(terminal) != "dumb" &&
         *terminal != '\0';
}

int PrintOnce(LoadMonitor* monitor, Console* console) {
  monitor->AskOnce();
  if (Interrupt::exit_code() != 0) return Interrupt::exit_code();
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

int ShowLive(LoadMonitor* monitor, const Console& console) {
  monitor->Start(kInterval);
  const bool unicode = SpeaksUtf8();
  TerminalScreen screen(console.in_is_terminal ? STDIN_FILENO : -1, STDOUT_FILENO);
  while (Interrupt::exit_code() == 0) {
    screen.Draw(
        TopLines(monitor->Loads(), client::MonotonicNow(), {screen.size(), unicode, absl::Now()}));
    char key = 0;
    const TerminalScreen::Event event = screen.Wait(kRedrawInterval, &key);
    const bool quits = event == TerminalScreen::Event::kKey && (key == 'q' || key == 'Q');
    if (quits || event == TerminalScreen::Event::kClosed) return kSuccess;
  }
  return Interrupt::exit_code();
}

absl::StatusOr<int> RunTop(const Arguments& /*arguments*/, Console* console) {
  const std::vector<std::string> targets = SplitTargets(absl::GetFlag(FLAGS_admin_target));
  if (targets.empty()) {
    return UsageError("needs --admin_target, the host:port of a server's --admin_port");
  }
  TLM_ASSIGN_OR_RETURN(const auto client_options, ClientOptionsFromFlags(console));
  Interrupt signals(Interrupt::Second::kIsIgnored);
  TLM_ASSIGN_OR_RETURN(
      const auto monitor,
      LoadMonitor::Create(targets, client_options, std::min(TimeoutFromFlags(), kMaxTimeout),
                          signals.token()));
  const bool once = absl::GetFlag(FLAGS_once) || !CanDraw(*console);
  return once ? PrintOnce(monitor.get(), console) : ShowLive(monitor.get(), *console);
}

}  // namespace

Command TopCommand() {
  return {
      .name = "top",
      .summary = "show the load of servers, live",
      .details =
          R"(Asks the admin ports of one server or several, with commas between them, every second. The
KV cache is shown as [####==--]: held by sequences, kept by the prefix cache alone, free.
q or Ctrl-C ends it. With --once, or where the output is no terminal, it prints one table;
the exit code is then 1 when a server did not answer.

  tlm top --admin_target=127.0.0.1:50061,127.0.0.1:50062)",
      .flags = "admin_target once",
      .connects = true,
      .run = RunTop,
      .flag_help = {
          {"admin_target", "the admin ports of servers, as host:port, with commas between them"},
          {"timeout", "a server that takes longer cannot be reached; 3s at the most"},
          {"once", "print one table and end"}}};
}

}  // namespace tlm::cli
