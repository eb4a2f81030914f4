#include <fmt/format.h>

#include <utility>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/interrupt.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/terminal.h"
#include "client/cli/bench_load.h"
#include "client/cli/bench_options.h"
#include "client/cli/bench_prompts.h"
#include "client/cli/bench_report.h"
#include "client/cpp/client.h"

namespace tlm::cli {
namespace {

absl::StatusOr<BenchPrompts> MakePrompts(const BenchOptions& options,
                                         const v1::ModelInfoResponse& model) {
  if (!options.prompts_file.empty()) return BenchPrompts::FromFile(options.prompts_file);
  return BenchPrompts::Random(options.prompt_tokens, model.architecture().vocab_size(),
                              options.seed);
}

std::string Situation(const BenchProgress& progress, const BenchResult& result) {
  if (progress.warming_up) return fmt::format("warming up, {} in flight", progress.in_flight);
  return fmt::format("{} ok, {} failed, {} in flight, {} tokens{}", result.ok, result.failed,
                     progress.in_flight, result.output_tokens,
                     progress.draining ? "; waiting for the last ones" : "");
}

void Print(const BenchSubject& subject, const BenchOptions& options, const BenchResult& result,
           Console* console) {
  if (absl::GetFlag(FLAGS_json)) {
    PrintBenchJson(subject, options, result, console->out);
  } else {
    PrintBenchTables(subject, options, result, console->out);
  }
  console->out.flush();
}

absl::StatusOr<v1::ModelInfoResponse> AskModel(client::Client* client,
                                               client::CancelToken* cancel) {
  v1::ModelInfoRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  client::CallOptions options;
  options.timeout = TimeoutFromFlags();
  options.cancel = cancel;
  return client->ModelInfo(request, options);
}

BenchSubject SubjectOf(const v1::ModelInfoResponse& model) {
  const auto& identity = model.identity();
  return {TargetsFromFlags(), identity.model_id(),
          fmt::format("{} on {}", identity.server_version(), identity.device_name())};
}

}  // namespace

int RunBench(const Arguments& arguments, Console* console) {
  if (!arguments.empty()) return ReportUsage("bench", "takes no arguments", console);
  const auto options = BenchOptionsFromFlags();
  if (!options.ok()) return ReportUsage("bench", StatusMessage(options.status()), console);
  const auto client_options = ClientOptionsFromFlags(console);
  if (!client_options.ok()) return ReportError("bench", client_options.status(), console);
  Interrupt interrupt;
  const auto client = client::Client::Connect(TargetsFromFlags(), *client_options);
  if (!client.ok()) return ReportError("bench", client.status(), console);
  const auto model = AskModel(client->get(), interrupt.token());
  if (!model.ok()) {
    return interrupt.exit_code() != 0 ? interrupt.exit_code()
                                      : ReportError("bench", model.status(), console);
  }
  const auto prompts = MakePrompts(*options, *model);
  if (!prompts.ok()) return ReportError("bench", prompts.status(), console);
  auto load = BenchLoad::Create(*options, *prompts, TargetsFromFlags(), *client_options);
  if (!load.ok()) return ReportError("bench", load.status(), console);

  BenchResult result;
  {
    ProgressLine line(console);
    result = (*load)->Run(*interrupt.token(),
                          [&line](const BenchProgress& progress, const BenchResult& so_far) {
                            line.Show(progress.done, Situation(progress, so_far));
                          });
  }
  Print(SubjectOf(*model), *options, result, console);
  if (interrupt.exit_code() != 0) return interrupt.exit_code();
  return result.ok > 0 ? kSuccess : kFailure;
}

}  // namespace tlm::cli
