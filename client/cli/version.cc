#include "client/cli/command.h"
#include "client/cli/report.h"

namespace tlm::cli {

int RunVersion(const Arguments& arguments, Console* console) {
  if (!arguments.empty()) return ReportUsage("version", "takes no arguments", console);
  console->out << "tlm " TLM_VERSION " (API tlm.v1)\n";
  return kSuccess;
}

}  // namespace tlm::cli
