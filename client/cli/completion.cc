#include <string>

#include "client/cli/command.h"
#include "client/cli/completion_scripts.h"
#include "client/cli/report.h"

namespace tlm::cli {

int RunCompletion(const Arguments& arguments, Console* console) {
  const std::string shell = arguments.size() == 1 ? arguments[0] : "";
  if (shell == "bash") {
    console->out << BashCompletion();
  } else if (shell == "zsh") {
    console->out << ZshCompletion();
  } else if (shell == "fish") {
    console->out << FishCompletion();
  } else {
    return ReportUsage("completion", "takes one of bash, zsh and fish", console);
  }
  return kSuccess;
}

}  // namespace tlm::cli
