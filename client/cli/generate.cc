#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/time/clock.h"
#include "client/cli/base/command.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/generate_request.h"

ABSL_DECLARE_FLAG(bool, stats);

namespace tlm::cli {
namespace {

absl::Status PrintEvents(client::GenerateStream* stream, Console* console) {
  v1::GenerateResponse event;
  while (stream->Read(&event)) PrintJson(event, console->out);
  return stream->Finish();
}

absl::Status PrintText(const GenerateOutputOptions& options, absl::Time start,
                       client::GenerateStream* stream, Console* console) {
  GenerateOutput output(options, start, console);
  v1::GenerateResponse event;
  while (stream->Read(&event)) {
    if (absl::Status status = output.Add(event, absl::Now()); !status.ok()) {
      output.Abandon();
      return status;
    }
  }
  if (absl::Status status = stream->Finish(); !status.ok()) {
    output.Abandon();
    return status;
  }
  return output.Finish();
}

}  // namespace

int RunGenerate(const Arguments& arguments, Console* console) {
  const auto request = GenerateRequestFromFlags(arguments, &console->in);
  if (!request.ok()) return ReportUsage("generate", StatusMessage(request.status()), console);
  auto session = Session::Open("generate", console);
  if (!session.ok()) return ReportError("generate", session.status(), console);

  const v1::OutputOptions& output = request->output();
  GenerateOutputOptions options;
  options.ids = output.token_ids();
  options.logprobs = output.has_logprobs() ? output.logprobs() : output.top_logprobs() > 0;
  options.stats = absl::GetFlag(FLAGS_stats) || console->err_is_terminal;
  const absl::Time start = absl::Now();
  const auto stream = (*session)->client().StartGenerate(*request, (*session)->call_options());
  const absl::Status status = absl::GetFlag(FLAGS_json)
                                  ? PrintEvents(stream.get(), console)
                                  : PrintText(options, start, stream.get(), console);
  if (status.ok()) ReportResumes("generate", (*session)->client(), *stream, console);
  return (*session)->Finish(status);
}

}  // namespace tlm::cli
