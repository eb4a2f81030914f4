#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/score_output.h"
#include "client/cli/score_request.h"

namespace tlm::cli {

int RunScore(const Arguments& arguments, Console* console) {
  const auto request = ScoreRequestFromFlags(arguments, &console->in);
  if (!request.ok()) return ReportUsage("score", StatusMessage(request.status()), console);
  auto session = Session::Open("score", console);
  if (!session.ok()) return ReportError("score", session.status(), console);

  const auto response = (*session)->client().Score(*request, (*session)->call_options());
  if (!response.ok()) return (*session)->Finish(response.status());
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*response, console->out);
    return kSuccess;
  }
  PrintScoreTable(*request, *response, console->out);
  if (absl::GetFlag(FLAGS_logprobs).value_or(request->top_logprobs() > 0)) {
    PrintScoreTokens(*response, console->out);
  }
  return kSuccess;
}

}  // namespace tlm::cli
