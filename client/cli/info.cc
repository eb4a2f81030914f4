#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/command.h"
#include "client/cli/info_tables.h"
#include "client/cli/report.h"
#include "client/cli/request_flags.h"
#include "client/cli/session.h"
#include "model/describe/offline.h"

ABSL_FLAG(std::string, preset, "",
          "tell of a known model instead, without a server; a wrong name lists them");
ABSL_FLAG(std::string, config, "",
          "tell of a config.json, or of the one in a model directory, instead, without a server");
ABSL_FLAG(bool, tensors, false, "list every tensor of the checkpoint");
ABSL_FLAG(uint32_t, batch, 0, "count FLOPs of this many sequences; 0 is one");
ABSL_FLAG(std::optional<uint32_t>, prompt_tokens, std::nullopt,
          "of prompts of this many tokens; 0 fills the context");
ABSL_FLAG(uint32_t, new_tokens, 0, "and of this many generated tokens");

namespace tlm::cli {
namespace {

// None when no flag asks for another shape than the server's own.
std::optional<v1::FlopsQuery> FlopsFromFlags() {
  v1::FlopsQuery query;
  query.set_batch(absl::GetFlag(FLAGS_batch));
  query.set_prompt_tokens(absl::GetFlag(FLAGS_prompt_tokens).value_or(0));
  query.set_new_tokens(absl::GetFlag(FLAGS_new_tokens));
  if (query.batch() == 0 && query.prompt_tokens() == 0 && query.new_tokens() == 0) return {};
  return query;
}

v1::ModelInfoRequest RequestFromFlags() {
  v1::ModelInfoRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_include_tensors(absl::GetFlag(FLAGS_tensors));
  if (const auto flops = FlopsFromFlags()) *request.mutable_flops() = *flops;
  return request;
}

int RunOffline(const absl::StatusOr<OfflineModel>& model, Console* console) {
  if (!model.ok()) return ReportError("info", model.status(), console);
  const auto info = DescribeOffline(*model, RequestFromFlags());
  if (!info.ok()) return ReportError("info", info.status(), console);
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*info, console->out);
  } else {
    PrintModelEstimate(*info, console->out);
  }
  return kSuccess;
}

}  // namespace

int RunInfo(const Arguments& arguments, Console* console) {
  if (!arguments.empty()) return ReportUsage("info", "takes no arguments", console);
  const std::string preset = absl::GetFlag(FLAGS_preset);
  const std::string config = absl::GetFlag(FLAGS_config);
  if (!preset.empty() && !config.empty()) {
    return ReportUsage("info", "--preset and --config exclude each other", console);
  }
  if (!preset.empty()) return RunOffline(OfflineModelFromPreset(preset), console);
  if (!config.empty()) return RunOffline(OfflineModelFromPath(config), console);

  auto session = Session::Open("info", console);
  if (!session.ok()) return ReportError("info", session.status(), console);
  const auto response =
      (*session)->client().ModelInfo(RequestFromFlags(), (*session)->call_options());
  if (!response.ok()) return (*session)->Finish(response.status());
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*response, console->out);
  } else {
    PrintModelInfo(*response, console->out);
  }
  return kSuccess;
}

}  // namespace tlm::cli
