#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/base/table.h"
#include "client/cli/base/text.h"

ABSL_FLAG(bool, pieces, false, "print one token a line, with its text");

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

}  // namespace

int RunTokenize(const Arguments& arguments, Console* console) {
  if (arguments.size() != 1) return ReportUsage("tokenize", "takes one TEXT", console);
  auto text = ReadText(arguments[0], &console->in);
  if (!text.ok()) return ReportUsage("tokenize", StatusMessage(text.status()), console);
  auto session = Session::Open("tokenize", console);
  if (!session.ok()) return ReportError("tokenize", session.status(), console);

  v1::TokenizeRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  request.set_text(*std::move(text));
  if (const auto add = absl::GetFlag(FLAGS_add_special_tokens)) {
    request.set_add_special_tokens(*add);
  }
  const auto response = (*session)->client().Tokenize(request, (*session)->call_options());
  if (!response.ok()) return (*session)->Finish(response.status());
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*response, console->out);
  } else if (absl::GetFlag(FLAGS_pieces)) {
    PrintPieces(*response, console->out);
  } else {
    console->out << fmt::format("{}\n", fmt::join(response->token_ids(), ","));
  }
  return kSuccess;
}

}  // namespace tlm::cli
