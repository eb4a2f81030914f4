#include "client/cli/generate.h"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/text.h"
#include "client/cpp/client_context.h"
#include "model/base/errors.h"

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
  if (!mode.empty()) {
    TLM_ASSIGN_OR_RETURN(const auto value,
                         ValueOf<v1::LogprobsMode>("logprobs_mode", mode,
                                                   {{"raw", v1::LOGPROBS_MODE_RAW},
                                                    {"processed", v1::LOGPROBS_MODE_PROCESSED}}));
    output->set_logprobs_mode(value);
  }
  return absl::OkStatus();
}

absl::Status SetPrompt(const Arguments& arguments, std::istream* in, v1::GenerateRequest* request) {
  const IdList ids = absl::GetFlag(FLAGS_prompt_ids);
  if (arguments.size() + (ids.ids.empty() ? 0 : 1) != 1) {
    return InvalidArgument("takes one PROMPT (in quotes if it has spaces), or --prompt_ids");
  }
  if (!ids.ids.empty()) {
    request->mutable_prompt_token_ids()->mutable_ids()->Add(ids.ids.begin(), ids.ids.end());
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(*request->mutable_prompt(), ReadText(arguments[0], in));
  return absl::OkStatus();
}

// Prints the events and collects them.
absl::StatusOr<client::GenerateResult> PrintEvents(client::GenerateStream* stream,
                                                   Console* console) {
  client::GenerateCollector collector;
  v1::GenerateResponse event;
  while (stream->Read(&event)) {
    PrintJson(event, console->out);
    TLM_RETURN_IF_ERROR(collector.Add(std::move(event)));
  }
  TLM_RETURN_IF_ERROR(stream->Finish());
  return collector.TakeResult();
}

absl::Status Save(const v1::GenerateRequest& request, const client::GenerateResult& result,
                  const std::string& path) {
  std::ofstream file(path);
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    PrintJson(client::ClaimOf(request, result, i), file);
  }
  file.close();
  if (file) return absl::OkStatus();
  return NotFound("{}: cannot be written", Printable(path));
}

absl::StatusOr<int> RunGenerate(const Arguments& arguments, Console* console) {
  TLM_ASSIGN_OR_RETURN(const v1::GenerateRequest request,
                       AsUsage(GenerateRequestFromFlags(arguments, &console->in)));
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  const v1::OutputOptions& output = request.output();
  GenerateOutputOptions options;
  options.ids = absl::GetFlag(FLAGS_print_ids);
  options.logprobs = output.has_logprobs() ? output.logprobs() : output.top_logprobs() > 0;
  options.stats = absl::GetFlag(FLAGS_stats) || console->err_is_terminal;
  const absl::Time start = client::MonotonicNow();
  const auto stream = session->client().StartGenerate(request, session->call_options());
  client::GenerateResult result;
  if (absl::GetFlag(FLAGS_json)) {
    TLM_ASSIGN_OR_RETURN(result, PrintEvents(stream.get(), console));
  } else {
    GenerateOutput text(options, start, console);
    TLM_RETURN_IF_ERROR(text.PrintStream(stream.get()));
    result = text.result();
  }
  const std::string path = absl::GetFlag(FLAGS_save);
  if (!path.empty()) TLM_RETURN_IF_ERROR(Save(request, result, path));
  ReportResumes("generate", session->client(), *stream, console);
  return kSuccess;
}

}  // namespace

absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags(const Arguments& arguments,
                                                             std::istream* in) {
  v1::GenerateRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  SetFromFlag(&request, &v1::GenerateRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  SetFromFlag(&request, &v1::GenerateRequest::set_truncate_prompt_tokens,
              FLAGS_truncate_prompt_tokens);
  TLM_RETURN_IF_ERROR(SetGenerationFromFlags(&request));
  TLM_RETURN_IF_ERROR(SetConstraintFromFlags(&request));
  TLM_RETURN_IF_ERROR(SetOutput(request.mutable_output()));
  TLM_RETURN_IF_ERROR(SetPrompt(arguments, in, &request));
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
      .flags = fmt::format("prompt_ids num_sequences {} {} print_ids logprobs top_logprobs "
                           "prompt_logprobs logprobs_mode min_chunk_tokens final_only "
                           "add_special_tokens truncate_prompt_tokens model request_id save stats "
                           "json",
                           kSamplingFlags, kConstraintFlags),
      .connects = true,
      .run = RunGenerate};
}

}  // namespace tlm::cli
