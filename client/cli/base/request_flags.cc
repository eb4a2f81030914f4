#include "client/cli/base/request_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "absl/flags/flag.h"
#include "client/cli/base/messages.h"
#include "client/cli/base/report.h"
#include "client/cli/base/text.h"
#include "model/base/errors.h"

using tlm::cli::BiasList;
using tlm::cli::IdList;
using tlm::cli::IdLists;
using tlm::cli::OptionalText;
using tlm::cli::StringList;
using tlm::cli::TimeSpan;

ABSL_FLAG(std::string, model, "", "name of the model; empty = the served one");
ABSL_FLAG(std::string, request_id, "", "name of the request in the server's log");
ABSL_FLAG(std::optional<bool>, add_special_tokens, std::nullopt,
          "whether the tokenizer adds its special tokens to the text");
ABSL_FLAG(IdList, prompt_ids, {}, "token ids as the prompt, instead of PROMPT: 15496,11,995");
ABSL_FLAG(IdLists, ids, {}, "token ids instead of texts; several sequences: 1,2,3;4,5");
ABSL_FLAG(std::optional<bool>, logprobs, std::nullopt,
          "print a table of tokens with log-probabilities");
ABSL_FLAG(uint32_t, top_logprobs, 0, "alternatives for each token of the table");

ABSL_FLAG(std::optional<float>, temperature, std::nullopt,
          "0 always takes the most probable token");
ABSL_FLAG(std::optional<uint32_t>, top_k, std::nullopt, "keep the k most probable tokens; 0 = all");
ABSL_FLAG(std::optional<float>, top_p, std::nullopt,
          "keep the most probable tokens that together reach this probability");
ABSL_FLAG(std::optional<float>, min_p, std::nullopt,
          "drop tokens below this fraction of the highest probability");
ABSL_FLAG(std::optional<float>, typical_p, std::nullopt,
          "locally typical sampling: probability mass to keep");
ABSL_FLAG(std::optional<float>, repetition_penalty, std::nullopt,
          "above 1, tokens in prompt and output become less probable");
ABSL_FLAG(std::optional<float>, presence_penalty, std::nullopt,
          "subtracted once from the logits of tokens in the output");
ABSL_FLAG(std::optional<float>, frequency_penalty, std::nullopt,
          "subtracted from the logits of tokens in the output, once per occurrence");
ABSL_FLAG(std::optional<uint64_t>, seed, std::nullopt,
          "random seed; the same seed gives the same tokens");
ABSL_FLAG(std::optional<uint32_t>, num_sequences, std::nullopt, "number of independent outputs");
ABSL_FLAG(BiasList, logit_bias, {}, "added to logits, by token id: 198:-100,50256:2.5; repeatable");
ABSL_FLAG(IdList, allowed_token_ids, {}, "only these tokens: 11,13; repeatable");
ABSL_FLAG(IdList, banned_token_ids, {}, "never these tokens; repeatable");

ABSL_FLAG(std::optional<uint32_t>, max_new_tokens, std::nullopt,
          "tokens after which an output ends");
ABSL_FLAG(uint32_t, min_new_tokens, 0, "tokens before which no output ends");
ABSL_FLAG(
    StringList, stop, {},
    "end at these texts: commas between them, \\, is a comma and \\n a line break; repeatable");
ABSL_FLAG(IdList, stop_token_ids, {}, "end at these tokens; repeatable");
ABSL_FLAG(bool, ignore_eos, false, "do not end at end-of-sequence tokens");
ABSL_FLAG(bool, include_stop_in_output, false, "print the text that ended an output");

ABSL_FLAG(std::optional<int32_t>, priority, std::nullopt,
          "requests with a larger priority run first");
ABSL_FLAG(TimeSpan, soft_time_limit, TimeSpan{absl::InfiniteDuration()},
          "time after which outputs end, with the tokens so far");
ABSL_FLAG(bool, bypass_prefix_cache, false, "neither use nor fill the prefix cache");
ABSL_FLAG(std::string, cache_salt, "", "share cached prefixes only with requests of the same salt");

ABSL_FLAG(std::string, speculation, "",
          "auto or off: whether the server guesses tokens, which changes none of them");
ABSL_FLAG(std::optional<uint32_t>, max_draft_tokens, std::nullopt,
          "most tokens that the server guesses for one step of an output");

ABSL_FLAG(std::string, json_schema, "",
          "file with a JSON Schema that the output conforms to, or the schema itself: {...}");
ABSL_FLAG(bool, json_object, false, "the output is some JSON object");
ABSL_FLAG(OptionalText, regex, {}, "regular expression that the whole output matches");
ABSL_FLAG(std::string, grammar, "",
          "file with a grammar in GBNF for the output; it starts at root");
ABSL_FLAG(StringList, choice, {},
          "the output is one of these texts, written as those of --stop; repeatable");
ABSL_FLAG(std::string, structural_tag, "",
          "file with a StructuralTag as JSON, or the JSON itself: text with constrained regions "
          "after triggers");
ABSL_FLAG(bool, json_compact, false, "constrained JSON has no white space between its tokens");
ABSL_FLAG(bool, json_any_order, false,
          "properties of constrained JSON come in any order, not in that of the schema");
ABSL_FLAG(
    bool, json_any_escapes, false,
    "constrained JSON may be written as by any program: \\u00e9, and 1.0 or 4e1 for integers");

namespace tlm::cli {
namespace {

void SetIds(const absl::Flag<IdList>& flag, google::protobuf::RepeatedField<uint32_t>* field) {
  const IdList list = absl::GetFlag(flag);
  field->Add(list.ids.begin(), list.ids.end());
}

void SetSampling(v1::SamplingParams* sampling) {
  using Params = v1::SamplingParams;
  SetFromFlag(sampling, &Params::set_temperature, FLAGS_temperature);
  SetFromFlag(sampling, &Params::set_top_k, FLAGS_top_k);
  SetFromFlag(sampling, &Params::set_top_p, FLAGS_top_p);
  SetFromFlag(sampling, &Params::set_min_p, FLAGS_min_p);
  SetFromFlag(sampling, &Params::set_typical_p, FLAGS_typical_p);
  SetFromFlag(sampling, &Params::set_repetition_penalty, FLAGS_repetition_penalty);
  SetFromFlag(sampling, &Params::set_presence_penalty, FLAGS_presence_penalty);
  SetFromFlag(sampling, &Params::set_frequency_penalty, FLAGS_frequency_penalty);
  SetFromFlag(sampling, &Params::set_seed, FLAGS_seed);
  SetFromFlag(sampling, &Params::set_num_sequences, FLAGS_num_sequences);
  for (const auto& [id, bias] : absl::GetFlag(FLAGS_logit_bias).biases) {
    (*sampling->mutable_logit_bias())[id] = bias;
  }
  SetIds(FLAGS_allowed_token_ids, sampling->mutable_allowed_token_ids());
  SetIds(FLAGS_banned_token_ids, sampling->mutable_banned_token_ids());
}

void SetStopping(v1::StoppingCriteria* stopping) {
  SetFromFlag(stopping, &v1::StoppingCriteria::set_max_new_tokens, FLAGS_max_new_tokens);
  stopping->set_min_new_tokens(absl::GetFlag(FLAGS_min_new_tokens));
  for (const std::string& text : absl::GetFlag(FLAGS_stop).values) stopping->add_stop_strings(text);
  SetIds(FLAGS_stop_token_ids, stopping->mutable_stop_token_ids());
  stopping->set_ignore_eos(absl::GetFlag(FLAGS_ignore_eos));
  stopping->set_include_stop_in_output(absl::GetFlag(FLAGS_include_stop_in_output));
}

void SetScheduling(v1::GenerateRequest* request) {
  if (const auto priority = absl::GetFlag(FLAGS_priority)) {
    request->mutable_scheduling()->set_priority(*priority);
  }
  const absl::Duration limit = absl::GetFlag(FLAGS_soft_time_limit).duration;
  if (limit < absl::InfiniteDuration()) {
    *request->mutable_scheduling()->mutable_soft_time_limit() = ToProto(limit);
  }
  if (absl::GetFlag(FLAGS_bypass_prefix_cache)) {
    request->mutable_cache()->set_bypass_prefix_cache(true);
  }
  if (const std::string salt = absl::GetFlag(FLAGS_cache_salt); !salt.empty()) {
    request->mutable_cache()->set_cache_salt(salt);
  }
}

absl::Status SetSpeculation(v1::GenerateRequest* request) {
  using Options = v1::SpeculationOptions;
  const std::string mode = absl::GetFlag(FLAGS_speculation);
  if (!mode.empty()) {
    TLM_ASSIGN_OR_RETURN(const auto value,
                         ValueOf<Options::Mode>("speculation", mode,
                                                {{"auto", Options::AUTO}, {"off", Options::OFF}}));
    request->mutable_speculation()->set_mode(value);
  }
  if (const auto tokens = absl::GetFlag(FLAGS_max_draft_tokens)) {
    request->mutable_speculation()->set_max_draft_tokens(*tokens);
  }
  return absl::OkStatus();
}

absl::Status SetStructuralTag(const std::string& path, v1::GenerateRequest* request) {
  TLM_ASSIGN_OR_RETURN(const std::string json, ReadFlagFile("structural_tag", path));
  return WithContext(ParseJsonMessage(json, request->mutable_structural_tag()),
                     fmt::format("--structural_tag: {}", Printable(path)));
}

// Checks that at most one flag constrains the output.
absl::Status CheckOneConstraint() {
  std::vector<std::string_view> given;
  if (!absl::GetFlag(FLAGS_json_schema).empty()) given.push_back("--json_schema");
  if (absl::GetFlag(FLAGS_json_object)) given.push_back("--json_object");
  if (absl::GetFlag(FLAGS_regex).text) given.push_back("--regex");
  if (!absl::GetFlag(FLAGS_grammar).empty()) given.push_back("--grammar");
  if (!absl::GetFlag(FLAGS_choice).values.empty()) given.push_back("--choice");
  if (!absl::GetFlag(FLAGS_structural_tag).empty()) given.push_back("--structural_tag");
  if (given.size() <= 1) return absl::OkStatus();
  return InvalidArgument("{} exclude each other", fmt::join(given, " and "));
}

absl::Status SetJsonOptions(v1::GenerateRequest* request) {
  if (absl::GetFlag(FLAGS_json_compact)) {
    request->mutable_json()->set_whitespace(v1::JSON_WHITESPACE_COMPACT);
  }
  if (absl::GetFlag(FLAGS_json_any_order)) {
    request->mutable_json()->set_property_order(v1::JSON_PROPERTY_ORDER_ANY);
  }
  if (absl::GetFlag(FLAGS_json_any_escapes)) {
    request->mutable_json()->set_escapes(v1::JSON_ESCAPES_ANY);
  }
  if (!request->has_json() || request->has_json_schema() || request->json_object() ||
      request->has_structural_tag()) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "--json_compact, --json_any_order and --json_any_escapes need --json_schema, --json_object "
      "or "
      "--structural_tag");
}

absl::Status CheckContradictions(const v1::GenerateRequest& request) {
  const v1::StoppingCriteria& stopping = request.stopping();
  if (stopping.has_max_new_tokens() && stopping.min_new_tokens() > stopping.max_new_tokens()) {
    return InvalidArgument("--min_new_tokens is {}, more than --max_new_tokens, which is {}",
                           stopping.min_new_tokens(), stopping.max_new_tokens());
  }
  const auto& allowed = request.sampling().allowed_token_ids();
  const auto& banned = request.sampling().banned_token_ids();
  const bool none_left = std::all_of(allowed.begin(), allowed.end(), [&banned](uint32_t id) {
    return std::find(banned.begin(), banned.end(), id) != banned.end();
  });
  if (!allowed.empty() && none_left) {
    return InvalidArgument("--banned_token_ids leaves none of --allowed_token_ids");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadFlagFile(std::string_view flag, const std::string& path) {
  constexpr size_t kMaxBytes = size_t{4} << 20;  // gRPC's default message limit
  const bool is_json = path.starts_with('{') || path.starts_with('[');
  auto text = is_json ? path : ReadTextFile(path, kMaxBytes);
  absl::Status status = text.status();
  if (status.ok()) status = WithContext(CheckUtf8(*text), Printable(path));
  if (status.ok()) return text;
  return InvalidArgument("--{}: {}", flag, StatusMessage(status));
}

absl::Status SetConstraintFromFlags(v1::GenerateRequest* request) {
  TLM_RETURN_IF_ERROR(CheckOneConstraint());
  for (const std::string& choice : absl::GetFlag(FLAGS_choice).values) {
    TLM_RETURN_IF_ERROR(CheckUtf8(choice));
    request->mutable_choices()->add_choices(choice);
  }
  if (const auto regex = absl::GetFlag(FLAGS_regex).text) {
    TLM_RETURN_IF_ERROR(CheckUtf8(*regex));
    request->set_regex(*regex);
  }
  if (const std::string path = absl::GetFlag(FLAGS_json_schema); !path.empty()) {
    TLM_ASSIGN_OR_RETURN(*request->mutable_json_schema(), ReadFlagFile("json_schema", path));
  }
  if (const std::string path = absl::GetFlag(FLAGS_grammar); !path.empty()) {
    TLM_ASSIGN_OR_RETURN(*request->mutable_grammar(), ReadFlagFile("grammar", path));
  }
  if (const std::string path = absl::GetFlag(FLAGS_structural_tag); !path.empty()) {
    TLM_RETURN_IF_ERROR(SetStructuralTag(path, request));
  }
  if (absl::GetFlag(FLAGS_json_object)) request->set_json_object(true);
  return SetJsonOptions(request);
}

absl::Status SetGenerationFromFlags(v1::GenerateRequest* request) {
  request->set_model(absl::GetFlag(FLAGS_model));
  SetSampling(request->mutable_sampling());
  SetStopping(request->mutable_stopping());
  SetScheduling(request);
  TLM_RETURN_IF_ERROR(SetSpeculation(request));
  return CheckContradictions(*request);
}

}  // namespace tlm::cli
