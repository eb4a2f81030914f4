#include "client/cli/score_request.h"

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/set_from_flag.h"
#include "client/cli/base/text.h"

using tlm::cli::OptionalText;

ABSL_FLAG(OptionalText, prompt, {}, "the prompt; every argument is then a continuation");

namespace tlm::cli {
namespace {

absl::Status SetContext(Arguments* arguments, std::istream* in, v1::ScoreRequest* request) {
  const IdList ids = absl::GetFlag(FLAGS_prompt_ids);
  std::optional<std::string> prompt = absl::GetFlag(FLAGS_prompt).text;
  if (!ids.ids.empty() && prompt) {
    return absl::InvalidArgumentError("--prompt and --prompt_ids exclude each other");
  }
  if (!ids.ids.empty()) {
    request->mutable_prompt_token_ids()->mutable_ids()->Add(ids.ids.begin(), ids.ids.end());
    return absl::OkStatus();
  }
  if (!prompt) {
    if (arguments->empty()) {
      return absl::InvalidArgumentError(
          "takes a PROMPT and one or more CONTINUATIONs, or --prompt_ids and --ids");
    }
    prompt = arguments->front();
    arguments->erase(arguments->begin());
  }
  auto text = ReadText(*prompt, in);
  if (!text.ok()) return text.status();
  request->set_prompt(*std::move(text));
  return absl::OkStatus();
}

absl::Status AddContinuations(const Arguments& arguments, std::istream* in,
                              v1::ScoreRequest* request) {
  for (const std::string& argument : arguments) {
    auto text = ReadText(argument, in);
    if (!text.ok()) return text.status();
    request->add_continuations()->set_text(*std::move(text));
  }
  for (const std::vector<uint32_t>& ids : absl::GetFlag(FLAGS_ids).sequences) {
    request->add_continuations()->mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  if (request->continuations().empty()) {
    return absl::InvalidArgumentError("takes one or more CONTINUATIONs after the prompt, or --ids");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::ScoreRequest> ScoreRequestFromFlags(const Arguments& arguments,
                                                       std::istream* in) {
  v1::ScoreRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_top_logprobs(absl::GetFlag(FLAGS_top_logprobs));
  SetFromFlag(&request, &v1::ScoreRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  Arguments texts = arguments;
  if (absl::Status status = SetContext(&texts, in, &request); !status.ok()) return status;
  if (absl::Status status = AddContinuations(texts, in, &request); !status.ok()) return status;
  return request;
}

}  // namespace tlm::cli
