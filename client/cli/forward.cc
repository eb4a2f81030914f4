#include <fmt/format.h>

#include <map>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "client/cli/base/command.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/session.h"
#include "client/cli/base/text.h"
#include "client/cli/forward_output.h"
#include "client/cli/forward_request.h"
#include "client/cli/npy.h"

ABSL_FLAG(uint32_t, top, 10, "print this many tokens a position");
ABSL_FLAG(std::string, npy, "", "write the rows to this file too, as float32 [rows, tokens]");

namespace tlm::cli {
namespace {

// Texts of tokens, asked of the server one by one and remembered. Without a tokenizer there, or
// after too many, none.
class TokenTexts {
 public:
  explicit TokenTexts(Session* session) : session_(session) {}

  std::string Of(uint32_t id) {
    constexpr size_t kMaxLookups = 1000;
    if (const auto found = texts_.find(id); found != texts_.end()) return found->second;
    if (!available_ || texts_.size() >= kMaxLookups) return "";
    v1::DetokenizeRequest request;
    request.set_model(absl::GetFlag(FLAGS_model));
    request.add_token_ids(id);
    request.set_skip_special_tokens(false);
    const auto response = session_->client().Detokenize(request, session_->call_options());
    available_ = response.ok();
    if (!available_) return "";
    return texts_[id] = Quoted(response->bytes());
  }

 private:
  Session* const session_;
  bool available_ = true;
  std::map<uint32_t, std::string> texts_;
};

absl::Status PrintMessages(const v1::ForwardRequest& request, Session* session, Console* console) {
  const auto stream = session->client().StartForward(request, session->call_options());
  v1::ForwardResponse response;
  while (stream->Read(&response)) PrintJson(response, console->out);
  return stream->Finish();
}

// With a file to write the whole rows are needed; else the server picks the largest values.
absl::Status PrintTable(v1::ForwardRequest request, const std::string& npy, Session* session,
                        Console* console) {
  const uint32_t top = absl::GetFlag(FLAGS_top);
  if (npy.empty()) request.set_top_k(top);
  auto result = session->client().Forward(request, session->call_options());
  if (!result.ok()) return result.status();
  if (!npy.empty()) {
    if (absl::Status status = WriteNpy(npy, result->values, result->header.row_width());
        !status.ok()) {
      return status;
    }
    for (size_t i = 0; i < result->rows.size(); ++i) {
      result->top.push_back(TopOfRow(result->Row(i), top, request.vocab_slice().start()));
    }
  }
  TokenTexts texts(session);
  PrintTopTable(
      *result, [&texts](uint32_t id) { return texts.Of(id); }, console->out);
  return absl::OkStatus();
}

}  // namespace

int RunForward(const Arguments& arguments, Console* console) {
  auto request = ForwardRequestFromFlags(arguments, &console->in);
  if (!request.ok()) return ReportUsage("forward", StatusMessage(request.status()), console);
  const std::string npy = absl::GetFlag(FLAGS_npy);
  const bool json = absl::GetFlag(FLAGS_json);
  if (json && !npy.empty()) {
    return ReportUsage("forward", "--json and --npy exclude each other", console);
  }
  if (absl::GetFlag(FLAGS_top) == 0) return ReportUsage("forward", "--top is at least 1", console);
  auto session = Session::Open("forward", console);
  if (!session.ok()) return ReportError("forward", session.status(), console);
  return (*session)->Finish(json ? PrintMessages(*request, session->get(), console)
                                 : PrintTable(*request, npy, session->get(), console));
}

}  // namespace tlm::cli
