#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/generate_output.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

using tlm::cli::OptionalText;

ABSL_FLAG(OptionalText, prompt, {}, "the prompt; every argument is then a continuation");

namespace tlm::cli {
namespace {

absl::Status SetContext(Arguments* arguments, std::istream* in, v1::ScoreRequest* request) {
  const IdList ids = absl::GetFlag(FLAGS_prompt_ids);
  std::optional<std::string> prompt = absl::GetFlag(FLAGS_prompt).text;
  if (!ids.ids.empty() && prompt) {
    return InvalidArgument("--prompt and --prompt_ids exclude each other");
  }
  if (!ids.ids.empty()) {
    request->mutable_prompt_token_ids()->mutable_ids()->Add(ids.ids.begin(), ids.ids.end());
    return absl::OkStatus();
  }
  if (!prompt) {
    if (arguments->empty()) {
      return InvalidArgument(
          "takes a PROMPT and one or more CONTINUATIONs, or --prompt_ids and --ids");
    }
    prompt = arguments->front();
    arguments->erase(arguments->begin());
  }
  TLM_ASSIGN_OR_RETURN(*request->mutable_prompt(), ReadText(*prompt, in));
  return absl::OkStatus();
}

absl::Status AddContinuations(const Arguments& arguments, std::istream* in,
                              v1::ScoreRequest* request) {
  for (const std::string& argument : arguments) {
    TLM_ASSIGN_OR_RETURN(*request->add_continuations()->mutable_text(), ReadText(argument, in));
  }
  for (const std::vector<uint32_t>& ids : absl::GetFlag(FLAGS_ids).sequences) {
    request->add_continuations()->mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  if (request->continuations().empty()) {
    return InvalidArgument("takes one or more CONTINUATIONs after the prompt, or --ids");
  }
  return absl::OkStatus();
}

// Returns the text (or ids) of a continuation for its row, shortened.
std::string Label(const v1::Continuation& continuation) {
  constexpr size_t kMaxColumns = 48;
  if (!continuation.has_token_ids()) return Shortened(Quoted(continuation.text()), kMaxColumns);
  return Shortened(fmt::format("{}", fmt::join(continuation.token_ids().ids(), ",")), kMaxColumns);
}

// Makes the request. The first argument is the prompt unless --prompt or --prompt_ids gives it; the
// other arguments and the sequences of --ids are continuations.
absl::StatusOr<v1::ScoreRequest> ScoreRequestFromFlags(const Arguments& arguments,
                                                       std::istream* in) {
  v1::ScoreRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_top_logprobs(absl::GetFlag(FLAGS_top_logprobs));
  SetFromFlag(&request, &v1::ScoreRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  Arguments texts = arguments;
  TLM_RETURN_IF_ERROR(SetContext(&texts, in, &request));
  TLM_RETURN_IF_ERROR(AddContinuations(texts, in, &request));
  return request;
}

// Prints a row for each continuation: text, number of tokens, sum and mean of the natural-log
// probabilities, perplexity exp(-mean), and whether greedy decoding produces it.
void PrintScoreTable(const v1::ScoreRequest& request, const v1::ScoreResponse& response,
                     std::ostream& out) {
  Table table({Align::kRight, Align::kLeft, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kLeft});
  table.AddRow({"", "continuation", "tokens", "sum logprob", "mean", "perplexity", "greedy"});
  for (int i = 0; i < response.scores_size(); ++i) {
    const v1::ContinuationScore& score = response.scores(i);
    const bool has_mean = score.token_count() > 0;
    const double mean = has_mean ? score.sum_logprob() / score.token_count() : 0;
    table.AddRow({fmt::format("[{}]", i), Label(request.continuations(i)),
                  fmt::format("{}", score.token_count()),
                  fmt::format("{:.4f}", score.sum_logprob()),
                  has_mean ? fmt::format("{:.4f}", mean) : "-",
                  has_mean ? fmt::format("{:.5g}", std::exp(-mean)) : "-",
                  score.is_greedy() ? "yes" : "no"});
  }
  table.Print(out);
}

// Prints the tokens of each continuation under its index, "[0]"; positions count from its first
// token.
void PrintScoreTokens(const v1::ScoreResponse& response, std::ostream& out) {
  for (int i = 0; i < response.scores_size(); ++i) {
    const auto& tokens = response.scores(i).tokens();
    out << fmt::format("\n[{}]\n", i);
    PrintTokenTable(std::vector<v1::TokenInfo>(tokens.begin(), tokens.end()), 0, out);
  }
}

absl::StatusOr<int> RunScore(const Arguments& arguments, Console* console) {
  TLM_ASSIGN_OR_RETURN(const v1::ScoreRequest request,
                       AsUsage(ScoreRequestFromFlags(arguments, &console->in)));
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  TLM_ASSIGN_OR_RETURN(const v1::ScoreResponse response,
                       session->client().Score(request, session->call_options()));
  if (PrintedAsJson(response, console)) return kSuccess;
  PrintScoreTable(request, response, console->out);
  if (absl::GetFlag(FLAGS_logprobs).value_or(request.top_logprobs() > 0)) {
    PrintScoreTokens(response, console->out);
  }
  return kSuccess;
}

}  // namespace

Command ScoreCommand() {
  return {
      .name = "score",
      .arguments = "PROMPT CONTINUATION...",
      .summary = "log-likelihood of continuations of a prompt",
      .details =
          R"(Prints for each continuation the sum and mean of its tokens' natural-log probabilities, its
perplexity exp(-mean), and whether greedy decoding produces it; with --logprobs its tokens
too. With --prompt or --prompt_ids every argument is a continuation; --ids adds others.

  tlm score 'The capital of France is' ' Paris' ' Rome')",
      .flags =
          "prompt prompt_ids ids logprobs top_logprobs add_special_tokens model request_id json",
      .connects = true,
      .run = RunScore};
}

}  // namespace tlm::cli
