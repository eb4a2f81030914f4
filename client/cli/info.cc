#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <string>
#include <system_error>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/text.h"
#include "client/cli/info_tables.h"
#include "model/base/errors.h"
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

v1::ModelInfoRequest RequestFromFlags() {
  v1::ModelInfoRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_include_tensors(absl::GetFlag(FLAGS_tensors));
  v1::FlopsQuery flops;
  flops.set_batch(absl::GetFlag(FLAGS_batch));
  flops.set_prompt_tokens(absl::GetFlag(FLAGS_prompt_tokens).value_or(0));
  flops.set_new_tokens(absl::GetFlag(FLAGS_new_tokens));
  if (flops.ByteSizeLong() > 0) *request.mutable_flops() = flops;
  return request;
}

void Print(const v1::ModelInfoResponse& info,
           void (*print_all)(const v1::ModelInfoResponse&, std::ostream&), Console* console) {
  if (PrintedAsJson(info, console)) return;
  if (absl::GetFlag(FLAGS_all)) return print_all(info, console->out);
  PrintModelSummary(info, console->out);
  if (absl::GetFlag(FLAGS_tensors)) console->out << '\n';
  PrintTensors(info.parameters(), console->out);
}

absl::StatusOr<int> RunOffline(const absl::StatusOr<OfflineModel>& model, Console* console) {
  if (!model.ok()) return model.status();
  TLM_ASSIGN_OR_RETURN(const auto info, DescribeOffline(*model, RequestFromFlags()));
  Print(info, PrintModelEstimate, console);
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

absl::StatusOr<int> RunInfo(const Arguments& arguments, Console* console) {
  const std::string preset = absl::GetFlag(FLAGS_preset);
  if (arguments.size() > 1) return UsageError("takes one DIRECTORY at the most");
  if (!preset.empty() && !arguments.empty()) {
    return UsageError("--preset and a DIRECTORY exclude each other");
  }
  if (!preset.empty()) return RunOffline(OfflineModelFromPreset(preset), console);
  if (!arguments.empty()) return RunOffline(OfflineModelFromPath(arguments[0]), console);
  const std::string model = absl::GetFlag(FLAGS_model);
  const auto files = ModelFiles::Open(model);
  if (!files.ok()) return RunOffline(files.status(), console);
  if (files->is_gguf()) return RunOffline(OfflineModelFromGguf(*files), console);

  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  const auto info = session->client().ModelInfo(RequestFromFlags(), session->call_options());
  if (!info.ok()) {
    const int code = ReportFailure("info", info.status(), console);
    HintAtDirectory(model, console);
    return code;
  }
  Print(*info, PrintModelInfo, console);
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
      .flags = "all preset tensors batch prompt_tokens new_tokens model json",
      .connects = true,
      .run = RunInfo,
      .flag_help = {{"all", "print every table"}}};
}

}  // namespace tlm::cli
