#include "client/cli/generate.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/base/text.h"
#include "client/cpp/client_context.h"

ABSL_FLAG(bool, print_ids, false, "print token ids instead of text");
ABSL_FLAG(bool, prompt_logprobs, false, "also print a table of the prompt's tokens");
ABSL_FLAG(std::string, logprobs_mode, "",
          "raw (the model's) or processed (the sampled distribution)");
ABSL_FLAG(uint32_t, min_chunk_tokens, 0, "least tokens per event");
ABSL_FLAG(bool, final_only, false, "receive each output as one event");
ABSL_FLAG(std::optional<uint32_t>, truncate_prompt_tokens, std::nullopt,
          "keep only this many tokens at the end of the prompt");
ABSL_FLAG(std::string, save, "",
          "file for the request and its tokens as JSON, one line an output: for `tlm verify`");
ABSL_FLAG(bool, stats, false, "print counts and speed at the end, also without a terminal");

namespace tlm::cli {
namespace {

absl::Status SetOutput(v1::OutputOptions* output) {
  if (absl::GetFlag(FLAGS_print_ids)) {
    output->set_text(false);
    output->set_token_ids(true);
  }
  if (!absl::GetFlag(FLAGS_save).empty()) output->set_token_ids(true);
  SetFromFlag(output, &v1::OutputOptions::set_logprobs, FLAGS_logprobs);
  output->set_top_logprobs(absl::GetFlag(FLAGS_top_logprobs));
  output->set_prompt_logprobs(absl::GetFlag(FLAGS_prompt_logprobs));
  output->set_min_chunk_tokens(absl::GetFlag(FLAGS_min_chunk_tokens));
  output->set_final_only(absl::GetFlag(FLAGS_final_only));
  output->set_timing(absl::GetFlag(FLAGS_stats));
  const std::string mode = absl::GetFlag(FLAGS_logprobs_mode);
  if (mode == "raw") {
    output->set_logprobs_mode(v1::LOGPROBS_MODE_RAW);
  } else if (mode == "processed") {
    output->set_logprobs_mode(v1::LOGPROBS_MODE_PROCESSED);
  } else if (!mode.empty()) {
    return absl::InvalidArgumentError(
        fmt::format("--logprobs_mode is raw or processed, not {}", Quoted(mode)));
  }
  return absl::OkStatus();
}

absl::Status SetPrompt(const Arguments& arguments, std::istream* in, v1::GenerateRequest* request) {
  const IdList ids = absl::GetFlag(FLAGS_prompt_ids);
  if (arguments.size() + (ids.ids.empty() ? 0 : 1) != 1) {
    return absl::InvalidArgumentError(
        "takes one PROMPT (in quotes if it has spaces), or --prompt_ids");
  }
  if (!ids.ids.empty()) {
    request->mutable_prompt_token_ids()->mutable_ids()->Add(ids.ids.begin(), ids.ids.end());
    return absl::OkStatus();
  }
  auto text = ReadText(arguments[0], in);
  if (!text.ok()) return text.status();
  request->set_prompt(*std::move(text));
  return absl::OkStatus();
}

// Prints the events and collects them.
absl::Status PrintEvents(client::GenerateStream* stream, Console* console,
                         client::GenerateResult* result) {
  client::GenerateCollector collector;
  v1::GenerateResponse event;
  while (stream->Read(&event)) {
    PrintJson(event, console->out);
    if (absl::Status status = collector.Add(std::move(event)); !status.ok()) return status;
  }
  *result = collector.TakeResult();
  return stream->Finish();
}

absl::Status PrintText(const GenerateOutputOptions& options, absl::Time start,
                       client::GenerateStream* stream, Console* console,
                       client::GenerateResult* result) {
  GenerateOutput output(options, start, console);
  v1::GenerateResponse event;
  while (stream->Read(&event)) {
    if (absl::Status status = output.Add(event, client::MonotonicNow()); !status.ok()) {
      output.Abandon();
      return status;
    }
  }
  if (absl::Status status = stream->Finish(); !status.ok()) {
    output.Abandon();
    return status;
  }
  *result = output.result();
  return output.Finish();
}

absl::Status Save(const v1::GenerateRequest& request, const client::GenerateResult& result,
                  const std::string& path) {
  std::ofstream file(path);
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    PrintJson(client::ClaimOf(request, result, i), file);
  }
  file.close();
  if (file) return absl::OkStatus();
  return absl::NotFoundError(fmt::format("{}: cannot be written", Printable(path)));
}

constexpr std::string_view kPromptFlags[] = {"prompt_ids", "num_sequences"};

constexpr std::string_view kOutputFlags[] = {"print_ids",
                                             "logprobs",
                                             "top_logprobs",
                                             "prompt_logprobs",
                                             "logprobs_mode",
                                             "min_chunk_tokens",
                                             "final_only",
                                             "add_special_tokens",
                                             "truncate_prompt_tokens",
                                             "model",
                                             "request_id",
                                             "save",
                                             "stats",
                                             "json"};

int RunGenerate(const Arguments& arguments, Console* console) {
  const auto request = GenerateRequestFromFlags(arguments, &console->in);
  if (!request.ok()) return ReportUsage("generate", StatusMessage(request.status()), console);
  auto session = Session::Open("generate", console);
  if (!session.ok()) return ReportError("generate", session.status(), console);

  const v1::OutputOptions& output = request->output();
  GenerateOutputOptions options;
  options.ids = absl::GetFlag(FLAGS_print_ids);
  options.logprobs = output.has_logprobs() ? output.logprobs() : output.top_logprobs() > 0;
  options.stats = absl::GetFlag(FLAGS_stats) || console->err_is_terminal;
  const absl::Time start = client::MonotonicNow();
  const auto stream = (*session)->client().StartGenerate(*request, (*session)->call_options());
  client::GenerateResult result;
  absl::Status status = absl::GetFlag(FLAGS_json)
                            ? PrintEvents(stream.get(), console, &result)
                            : PrintText(options, start, stream.get(), console, &result);
  const std::string path = absl::GetFlag(FLAGS_save);
  if (status.ok() && !path.empty()) status = Save(*request, result, path);
  if (status.ok()) ReportResumes("generate", (*session)->client(), *stream, console);
  return (*session)->Finish(status);
}

}  // namespace

absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags(const Arguments& arguments,
                                                             std::istream* in) {
  v1::GenerateRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  SetFromFlag(&request, &v1::GenerateRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  SetFromFlag(&request, &v1::GenerateRequest::set_truncate_prompt_tokens,
              FLAGS_truncate_prompt_tokens);
  if (absl::Status status = SetGenerationFromFlags(&request); !status.ok()) return status;
  if (absl::Status status = SetConstraintFromFlags(&request); !status.ok()) return status;
  if (absl::Status status = SetOutput(request.mutable_output()); !status.ok()) return status;
  if (absl::Status status = SetPrompt(arguments, in, &request); !status.ok()) return status;
  return request;
}

Command GenerateCommand() {
  return {
      .name = "generate",
      .arguments = "PROMPT",
      .summary = "continue a prompt; the text is streamed",
      .details =
          R"(PROMPT is text, or - to read it from standard input; with --prompt_ids there is none.
Flags that are not given leave the choice to the server. Of several outputs
(--num_sequences) each is printed when it is complete, under its index: [0].
`tlm verify` checks what --save wrote, on this server or another one.

  tlm generate 'Once upon a time' --max_new_tokens=60 --temperature=0.8 --seed=1
  tlm generate 'A prince is' --choice='good,bad')",
      .flags =
          JoinFlagNames({kPromptFlags, SamplingFlagNames(), ConstraintFlagNames(), kOutputFlags}),
      .connects = true,
      .run = RunGenerate};
}

}  // namespace tlm::cli
