#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

ABSL_FLAG(bool, pieces, false, "print one token per line, with its text");
ABSL_FLAG(std::optional<bool>, skip_special_tokens, std::nullopt,
          "leave special tokens out of the text");

namespace tlm::cli {
namespace {

void PrintPieces(const v1::TokenizeResponse& response, std::ostream& out) {
  Table table({Align::kRight, Align::kLeft});
  for (int i = 0; i < response.token_ids_size(); ++i) {
    const std::string bytes = i < response.token_bytes_size() ? response.token_bytes(i) : "";
    table.AddRow({fmt::format("{}", response.token_ids(i)), Quoted(bytes)});
  }
  table.Print(out);
}

absl::StatusOr<int> RunTokenize(const Arguments& arguments, Console* console) {
  if (arguments.size() != 1) return UsageError("takes one TEXT");
  v1::TokenizeRequest request;
  TLM_ASSIGN_OR_RETURN(*request.mutable_text(), AsUsage(ReadText(arguments[0], &console->in)));
  request.set_model(absl::GetFlag(FLAGS_model));
  SetFromFlag(&request, &v1::TokenizeRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  TLM_ASSIGN_OR_RETURN(const auto response,
                       session->client().Tokenize(request, session->call_options()));
  if (PrintedAsJson(response, console)) return kSuccess;
  if (absl::GetFlag(FLAGS_pieces)) {
    PrintPieces(response, console->out);
  } else {
    console->out << fmt::format("{}\n", fmt::join(response.token_ids(), ","));
  }
  return kSuccess;
}

absl::StatusOr<int> RunDetokenize(const Arguments& arguments, Console* console) {
  if (arguments.size() != 1) {
    return UsageError("takes one argument, IDS, with commas between them");
  }
  IdList ids;
  std::string error;
  if (!AbslParseFlag(absl::string_view(arguments[0]), &ids, &error)) {
    return UsageError("{}", error);
  }
  v1::DetokenizeRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  request.mutable_token_ids()->Add(ids.ids.begin(), ids.ids.end());
  SetFromFlag(&request, &v1::DetokenizeRequest::set_skip_special_tokens, FLAGS_skip_special_tokens);
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  TLM_ASSIGN_OR_RETURN(const auto response,
                       session->client().Detokenize(request, session->call_options()));
  if (PrintedAsJson(response, console)) return kSuccess;
  if (console->out_is_terminal) {
    console->out << Printable(response.text()) << '\n';
  } else {
    console->out << response.bytes();  // The exact bytes, nothing added.
  }
  return kSuccess;
}

}  // namespace

Command TokenizeCommand() {
  return {
      .name = "tokenize",
      .arguments = "TEXT",
      .summary = "convert text to token ids",
      .details =
          R"(Prints the ids with commas between them, ready for --prompt_ids. TEXT may be - to read it
from standard input.

  tlm tokenize 'Once upon a time' --pieces)",
      .flags = "pieces add_special_tokens model json",
      .connects = true,
      .run = RunTokenize};
}

Command DetokenizeCommand() {
  return {.name = "detokenize",
          .arguments = "IDS",
          .summary = "convert token ids to text",
          .details = R"(IDS have commas between them.

  tlm detokenize 15496,11,995)",
          .flags = "skip_special_tokens model json",
          .connects = true,
          .run = RunDetokenize};
}

}  // namespace tlm::cli
