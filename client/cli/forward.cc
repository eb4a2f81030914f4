#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "client/cli/base/command.h"
#include "client/cli/base/connection.h"
#include "client/cli/base/flag_types.h"
#include "client/cli/base/report.h"
#include "client/cli/base/request_flags.h"
#include "client/cli/base/text.h"
#include "client/cli/forward_output.h"
#include "model/base/errors.h"

ABSL_FLAG(std::string, positions, "last", "last, all, or positions such as 0,5,7");
ABSL_FLAG(std::string, values, "logits", "logits, log_probabilities or probabilities");
ABSL_FLAG(std::string, dtype, "float32", "float32, bfloat16 or float16 on the wire");
ABSL_FLAG(std::string, vocab_slice, "", "only token ids START:END, END not included");

ABSL_FLAG(uint32_t, top, 10, "tokens to print per position");
ABSL_FLAG(std::string, npy, "", "also write the rows to this file, as float32 [rows, tokens]");

namespace tlm::cli {
namespace {

absl::Status SetPositions(const std::string& text, v1::ForwardRequest* request) {
  if (text == "last") {
    request->set_last(true);
  } else if (text == "all") {
    request->set_all(true);
  } else {
    IdList indices;
    std::string error;
    if (text.empty() || !AbslParseFlag(absl::string_view(text), &indices, &error)) {
      return InvalidArgument(
          "--positions is last, all, or numbers with commas between them, not {}", Quoted(text));
    }
    request->mutable_indices()->mutable_indices()->Add(indices.ids.begin(), indices.ids.end());
  }
  return absl::OkStatus();
}

absl::Status SetVocabSlice(const std::string& text, v1::ForwardRequest* request) {
  if (text.empty()) return absl::OkStatus();
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  uint32_t start = 0;
  uint32_t end = 0;
  if (!absl::SimpleAtoi(ends.first, &start) || !absl::SimpleAtoi(ends.second, &end)) {
    return InvalidArgument("--vocab_slice is START:END, not {}", Quoted(text));
  }
  request->mutable_vocab_slice()->set_start(start);
  request->mutable_vocab_slice()->set_end(end);
  return absl::OkStatus();
}

absl::Status SetFormat(v1::ForwardRequest* request) {
  TLM_ASSIGN_OR_RETURN(
      const v1::RowValues values,
      ValueOf<v1::RowValues>("values", absl::GetFlag(FLAGS_values),
                             {{"logits", v1::ROW_VALUES_LOGITS},
                              {"log_probabilities", v1::ROW_VALUES_LOG_PROBABILITIES},
                              {"probabilities", v1::ROW_VALUES_PROBABILITIES}}));
  TLM_ASSIGN_OR_RETURN(const v1::DataType dtype,
                       ValueOf<v1::DataType>("dtype", absl::GetFlag(FLAGS_dtype),
                                             {{"float32", v1::DATA_TYPE_FLOAT32},
                                              {"bfloat16", v1::DATA_TYPE_BFLOAT16},
                                              {"float16", v1::DATA_TYPE_FLOAT16}}));
  request->set_values(values);
  request->set_dtype(dtype);
  return SetVocabSlice(absl::GetFlag(FLAGS_vocab_slice), request);
}

absl::Status SetSequences(const Arguments& arguments, std::istream* in,
                          v1::ForwardRequest* request) {
  const IdLists lists = absl::GetFlag(FLAGS_ids);
  if (arguments.empty() == lists.sequences.empty()) {
    return InvalidArgument("takes one or more PROMPTs, or --ids");
  }
  for (const auto& ids : lists.sequences) {
    request->add_sequences()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  for (const std::string& argument : arguments) {
    TLM_ASSIGN_OR_RETURN(*request->add_prompts(), ReadText(argument, in));
  }
  return absl::OkStatus();
}

// Returns the texts of tokens: a cache over Detokenize. Texts are empty if the server has no
// tokenizer, or after too many lookups.
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

// Requests complete rows if they go to a file; otherwise the server selects the largest values.
absl::Status PrintTable(v1::ForwardRequest request, const std::string& npy, Session* session,
                        Console* console) {
  const uint32_t top = absl::GetFlag(FLAGS_top);
  if (npy.empty()) request.set_top_k(top);
  TLM_ASSIGN_OR_RETURN(auto result, session->client().Forward(request, session->call_options()));
  if (!npy.empty()) {
    TLM_RETURN_IF_ERROR(WriteNpy(npy, result.values, result.header.row_width()));
    for (size_t i = 0; i < result.rows.size(); ++i) {
      result.top.push_back(TopOfRow(result.Row(i), top, request.vocab_slice().start()));
    }
  }
  TokenTexts texts(session);
  PrintTopTable(
      result, [&texts](uint32_t id) { return texts.Of(id); }, console->out);
  return absl::OkStatus();
}

// Makes a request for complete rows.
absl::StatusOr<v1::ForwardRequest> ForwardRequestFromFlags(const Arguments& arguments,
                                                           std::istream* in) {
  v1::ForwardRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  request.set_model(absl::GetFlag(FLAGS_model));
  SetFromFlag(&request, &v1::ForwardRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  TLM_RETURN_IF_ERROR(SetPositions(absl::GetFlag(FLAGS_positions), &request));
  TLM_RETURN_IF_ERROR(SetFormat(&request));
  TLM_RETURN_IF_ERROR(SetSequences(arguments, in, &request));
  return request;
}

absl::StatusOr<int> RunForward(const Arguments& arguments, Console* console) {
  TLM_ASSIGN_OR_RETURN(auto request, AsUsage(ForwardRequestFromFlags(arguments, &console->in)));
  const std::string npy = absl::GetFlag(FLAGS_npy);
  const bool json = absl::GetFlag(FLAGS_json);
  if (json && !npy.empty()) return UsageError("--json and --npy exclude each other");
  if (absl::GetFlag(FLAGS_top) == 0) return UsageError("--top is at least 1");
  TLM_ASSIGN_OR_RETURN(const auto session, Session::Open(console));
  TLM_RETURN_IF_ERROR(json ? PrintMessages(request, session.get(), console)
                           : PrintTable(request, npy, session.get(), console));
  return kSuccess;
}

}  // namespace

Command ForwardCommand() {
  return {
      .name = "forward",
      .arguments = "PROMPT...",
      .summary = "print logits or probabilities over the vocabulary",
      .details =
          R"(Prints the most probable next tokens of each position asked for. PROMPT is text, or - to
read it from standard input; with --ids there is none.

  tlm forward 'Once upon a' --top=5 --values=probabilities)",
      .flags =
          "ids positions values dtype top vocab_slice npy add_special_tokens model request_id "
          "json",
      .connects = true,
      .run = RunForward};
}

}  // namespace tlm::cli
