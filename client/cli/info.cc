#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/base/text.h"
#include "client/cli/info_tables.h"
#include "model/describe/offline.h"
#include "model/weights/model_files.h"

ABSL_DECLARE_FLAG(bool, all);
ABSL_FLAG(std::string, preset, "",
          "describe a published configuration, without a server; an unknown name lists them");
ABSL_FLAG(bool, tensors, false, "list every tensor of the checkpoint");
ABSL_FLAG(uint32_t, batch, 0, "FLOPs: number of sequences; 0 is one");
ABSL_FLAG(std::optional<uint32_t>, prompt_tokens, std::nullopt,
          "FLOPs: tokens of each prompt; 0 fills the context");
ABSL_FLAG(uint32_t, new_tokens, 0, "FLOPs: generated tokens of each sequence");

namespace tlm::cli {
namespace {

// Returns nullopt if no flag sets another shape than the server's default.
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

void Print(const v1::ModelInfoResponse& info,
           void (*print_all)(const v1::ModelInfoResponse&, std::ostream&), Console* console) {
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(info, console->out);
  } else if (absl::GetFlag(FLAGS_all)) {
    print_all(info, console->out);
  } else {
    PrintModelSummary(info, console->out);
    if (absl::GetFlag(FLAGS_tensors)) console->out << '\n';
    PrintTensors(info.parameters(), console->out);
  }
}

int RunOffline(const absl::StatusOr<OfflineModel>& model, Console* console) {
  if (!model.ok()) return ReportError("info", model.status(), console);
  const auto info = DescribeOffline(*model, RequestFromFlags());
  if (!info.ok()) return ReportError("info", info.status(), console);
  Print(*info, PrintModelEstimate, console);
  return kSuccess;
}

// Prints a hint that tlm-server's --model is a directory.
void HintAtDirectory(const std::string& model, Console* console) {
  std::error_code error;
  if (model.empty() || !std::filesystem::is_directory(model, error)) return;
  console->err << fmt::format(
                      "  --model is the name of a served model; `tlm info {}` describes the "
                      "directory",
                      Printable(model))
               << std::endl;
}

int RunInfo(const Arguments& arguments, Console* console) {
  const std::string preset = absl::GetFlag(FLAGS_preset);
  if (arguments.size() > 1) return ReportUsage("info", "takes one DIRECTORY at the most", console);
  if (!preset.empty() && !arguments.empty()) {
    return ReportUsage("info", "--preset and a DIRECTORY exclude each other", console);
  }
  if (!preset.empty()) return RunOffline(OfflineModelFromPreset(preset), console);
  if (!arguments.empty()) return RunOffline(OfflineModelFromPath(arguments[0]), console);
  const std::string model = absl::GetFlag(FLAGS_model);
  const auto files = ModelFiles::Open(model);
  if (!files.ok()) return RunOffline(files.status(), console);
  if (files->is_gguf()) return RunOffline(OfflineModelFromGguf(*files), console);

  auto session = Session::Open("info", console);
  if (!session.ok()) return ReportError("info", session.status(), console);
  const auto response =
      (*session)->client().ModelInfo(RequestFromFlags(), (*session)->call_options());
  if (!response.ok()) {
    const int code = (*session)->Finish(response.status());
    HintAtDirectory(absl::GetFlag(FLAGS_model), console);
    return code;
  }
  Print(*response, PrintModelInfo, console);
  return kSuccess;
}

}  // namespace

Command InfoCommand() {
  return {
      .name = "info",
      .arguments = "[DIRECTORY]",
      .summary = "describe the model: size, memory, limits, costs",
      .details =
          R"(With DIRECTORY or --preset no server is asked and no weights are loaded: DIRECTORY is that of
a model, a config.json itself, or a GGUF file, for which --model=FILE stands, too; --preset is a
known model. --batch, --prompt_tokens and
--new_tokens say what work is counted; it may be longer than the model's context. The FLOPs
are an upper bound by conventions that --all lists.

  tlm info --all
  tlm info ~/models/qwen3-0.6b
  tlm info qwen3-0.6b-q4_k_m.gguf --tensors
  tlm info --preset=gpt2-xl --prompt_tokens=16384)",
      .flags = {"all", "preset", "tensors", "batch", "prompt_tokens", "new_tokens", "model",
                "json"},
      .connects = true,
      .run = RunInfo,
      .flag_help = {{"all", "print every table"}}};
}

}  // namespace tlm::cli
