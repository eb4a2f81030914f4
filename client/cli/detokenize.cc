#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/base/text.h"

ABSL_FLAG(std::optional<bool>, skip_special_tokens, std::nullopt,
          "leave special tokens out of the text");

namespace tlm::cli {

int RunDetokenize(const Arguments& arguments, Console* console) {
  if (arguments.size() != 1) {
    return ReportUsage("detokenize", "takes one argument, IDS, with commas between them", console);
  }
  IdList ids;
  std::string error;
  if (!AbslParseFlag(absl::string_view(arguments[0]), &ids, &error)) {
    return ReportUsage("detokenize", error, console);
  }
  auto session = Session::Open("detokenize", console);
  if (!session.ok()) return ReportError("detokenize", session.status(), console);

  v1::DetokenizeRequest request;
  request.set_model(absl::GetFlag(FLAGS_model));
  request.mutable_token_ids()->Add(ids.ids.begin(), ids.ids.end());
  if (const auto skip = absl::GetFlag(FLAGS_skip_special_tokens)) {
    request.set_skip_special_tokens(*skip);
  }
  const auto response = (*session)->client().Detokenize(request, (*session)->call_options());
  if (!response.ok()) return (*session)->Finish(response.status());
  if (absl::GetFlag(FLAGS_json)) {
    PrintJson(*response, console->out);
  } else if (console->out_is_terminal) {
    console->out << Printable(response->text()) << '\n';
  } else {
    console->out << response->bytes();  // The exact bytes, nothing added.
  }
  return kSuccess;
}

}  // namespace tlm::cli
