#include "client/cli/generate_request.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "client/cli/flag_types.h"
#include "client/cli/proto_values.h"
#include "client/cli/request_flags.h"
#include "client/cli/text.h"

using tlm::cli::BiasList;
using tlm::cli::IdList;
using tlm::cli::StringList;
using tlm::cli::TimeSpan;

ABSL_FLAG(IdList, prompt_ids, {}, "token ids as the prompt, instead of PROMPT: 15496,11,995");

ABSL_FLAG(std::optional<float>, temperature, std::nullopt,
          "0 always takes the most probable token");
ABSL_FLAG(std::optional<uint32_t>, top_k, std::nullopt, "keep the k most probable tokens; 0 all");
ABSL_FLAG(std::optional<float>, top_p, std::nullopt,
          "keep the most probable tokens that together reach this probability");
ABSL_FLAG(std::optional<float>, min_p, std::nullopt,
          "drop tokens less probable than this times the most probable one");
ABSL_FLAG(std::optional<float>, typical_p, std::nullopt,
          "keep the tokens nearest to the expected information that together reach this");
ABSL_FLAG(std::optional<float>, repetition_penalty, std::nullopt,
          "above 1, tokens of prompt and output become less probable");
ABSL_FLAG(std::optional<float>, presence_penalty, std::nullopt,
          "subtracted once from the logits of tokens in the output");
ABSL_FLAG(std::optional<float>, frequency_penalty, std::nullopt,
          "subtracted from the logits of tokens in the output for each time they are there");
ABSL_FLAG(std::optional<uint64_t>, seed, std::nullopt, "the same seed gives the same tokens");
ABSL_FLAG(std::optional<uint32_t>, num_sequences, std::nullopt, "how many independent outputs");
ABSL_FLAG(BiasList, logit_bias, {}, "added to logits, by token id: 198:-100,50256:2.5");
ABSL_FLAG(IdList, allowed_token_ids, {}, "only these tokens");
ABSL_FLAG(IdList, banned_token_ids, {}, "never these tokens");

ABSL_FLAG(std::optional<uint32_t>, max_new_tokens, std::nullopt, "end each output after this many");
ABSL_FLAG(uint32_t, min_new_tokens, 0, "end no output before this many");
ABSL_FLAG(
    StringList, stop, {},
    "end at these texts: commas between them, \\, is a comma and \\n a line break; repeatable");
ABSL_FLAG(IdList, stop_token_ids, {}, "end at these tokens");
ABSL_FLAG(bool, ignore_eos, false, "do not end at end-of-sequence tokens");
ABSL_FLAG(bool, include_stop_in_output, false, "print the text that ended an output");

ABSL_FLAG(bool, print_ids, false, "print token ids instead of text");
ABSL_FLAG(std::optional<bool>, logprobs, std::nullopt,
          "print a table of tokens with log-probabilities");
ABSL_FLAG(uint32_t, top_logprobs, 0, "this many alternatives for each token of the table");
ABSL_FLAG(bool, prompt_logprobs, false, "a table of the prompt's tokens too");
ABSL_FLAG(std::string, logprobs_mode, "", "raw (the model's) or processed (what was drawn from)");
ABSL_FLAG(uint32_t, min_chunk_tokens, 0, "receive at least this many tokens at a time");
ABSL_FLAG(bool, final_only, false, "receive each output when it is complete");

ABSL_FLAG(std::optional<int32_t>, priority, std::nullopt, "larger runs first");
ABSL_FLAG(TimeSpan, soft_time_limit, TimeSpan{absl::InfiniteDuration()},
          "end the outputs, with what there is, after this long");
ABSL_FLAG(bool, bypass_prefix_cache, false, "neither use nor fill the prefix cache");
ABSL_FLAG(std::string, cache_salt, "", "share cached prefixes only with requests of the same salt");
ABSL_FLAG(std::optional<uint32_t>, truncate_prompt_tokens, std::nullopt,
          "keep only the last this many tokens of the prompt");
ABSL_FLAG(bool, stats, false, "print counts and speed at the end, as on a terminal");

namespace tlm::cli {
namespace {

// Sets a field if its flag was given.
template <typename Message, typename Value>
void Set(Message* message, void (Message::*setter)(Value),
         const absl::Flag<std::optional<Value>>& flag) {
  if (const std::optional<Value> value = absl::GetFlag(flag)) (message->*setter)(*value);
}

void SetIds(const absl::Flag<IdList>& flag, google::protobuf::RepeatedField<uint32_t>* field) {
  const IdList list = absl::GetFlag(flag);
  field->Add(list.ids.begin(), list.ids.end());
}

void SetSampling(v1::SamplingParams* sampling) {
  using Params = v1::SamplingParams;
  Set(sampling, &Params::set_temperature, FLAGS_temperature);
  Set(sampling, &Params::set_top_k, FLAGS_top_k);
  Set(sampling, &Params::set_top_p, FLAGS_top_p);
  Set(sampling, &Params::set_min_p, FLAGS_min_p);
  Set(sampling, &Params::set_typical_p, FLAGS_typical_p);
  Set(sampling, &Params::set_repetition_penalty, FLAGS_repetition_penalty);
  Set(sampling, &Params::set_presence_penalty, FLAGS_presence_penalty);
  Set(sampling, &Params::set_frequency_penalty, FLAGS_frequency_penalty);
  Set(sampling, &Params::set_seed, FLAGS_seed);
  Set(sampling, &Params::set_num_sequences, FLAGS_num_sequences);
  for (const auto& [id, bias] : absl::GetFlag(FLAGS_logit_bias).biases) {
    (*sampling->mutable_logit_bias())[id] = bias;
  }
  SetIds(FLAGS_allowed_token_ids, sampling->mutable_allowed_token_ids());
  SetIds(FLAGS_banned_token_ids, sampling->mutable_banned_token_ids());
}

void SetStopping(v1::StoppingCriteria* stopping) {
  Set(stopping, &v1::StoppingCriteria::set_max_new_tokens, FLAGS_max_new_tokens);
  stopping->set_min_new_tokens(absl::GetFlag(FLAGS_min_new_tokens));
  for (const std::string& text : absl::GetFlag(FLAGS_stop).values) stopping->add_stop_strings(text);
  SetIds(FLAGS_stop_token_ids, stopping->mutable_stop_token_ids());
  stopping->set_ignore_eos(absl::GetFlag(FLAGS_ignore_eos));
  stopping->set_include_stop_in_output(absl::GetFlag(FLAGS_include_stop_in_output));
}

absl::Status SetOutput(v1::OutputOptions* output) {
  if (absl::GetFlag(FLAGS_print_ids)) {
    output->set_text(false);
    output->set_token_ids(true);
  }
  Set(output, &v1::OutputOptions::set_logprobs, FLAGS_logprobs);
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

}  // namespace

absl::StatusOr<v1::GenerateRequest> GenerateRequestFromFlags(const Arguments& arguments,
                                                             std::istream* in) {
  v1::GenerateRequest request;
  request.set_request_id(absl::GetFlag(FLAGS_request_id));
  request.set_model(absl::GetFlag(FLAGS_model));
  SetSampling(request.mutable_sampling());
  SetStopping(request.mutable_stopping());
  SetScheduling(&request);
  Set(&request, &v1::GenerateRequest::set_add_special_tokens, FLAGS_add_special_tokens);
  Set(&request, &v1::GenerateRequest::set_truncate_prompt_tokens, FLAGS_truncate_prompt_tokens);
  if (absl::Status status = SetOutput(request.mutable_output()); !status.ok()) return status;
  if (absl::Status status = SetPrompt(arguments, in, &request); !status.ok()) return status;
  return request;
}

}  // namespace tlm::cli
