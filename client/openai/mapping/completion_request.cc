// Reads bodies of /v1/completions.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/openai/mapping/common_fields.h"
#include "client/openai/mapping/fields.h"
#include "client/openai/mapping/request.h"

namespace tlm::openai {
namespace {

// OpenAI's default.
constexpr uint32_t kDefaultMaxTokens = 16;

bool IsListOfIds(const Json& value) {
  return value.is_array() && !value.empty() && value.front().is_number();
}

// Adds a call for one prompt, a text or token ids.
void AddPrompt(const Json& prompt, const std::string& name, Reading* reading, ApiRequest* api) {
  v1::GenerateRequest& call = api->calls.emplace_back();
  std::string& echoed = api->echoed.emplace_back();
  if (prompt.is_string()) {
    echoed = prompt.get<std::string>();
    call.set_prompt(echoed);
    return;
  }
  const std::vector<uint32_t> ids = IdsOf(prompt, name, kMaxListed, reading);
  call.mutable_prompt_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
}

// Reads `prompt`: a text, token ids, or an array of these.
void ReadPrompts(Fields* body, const MappingOptions& options, ApiRequest* api) {
  const Json* const prompt = body->Find("prompt");
  if (prompt == nullptr) {
    body->Fail("prompt", "is missing");
  } else if (prompt->is_string() || IsListOfIds(*prompt)) {
    AddPrompt(*prompt, "prompt", body->reading(), api);
  } else if (!prompt->is_array()) {
    body->Fail("prompt", fmt::format("is {}, it must be a string, token ids, or an array of these",
                                     Shown(*prompt)));
  } else if (prompt->empty()) {
    body->Fail("prompt", "is empty");
  } else if (prompt->size() > options.max_prompts) {
    body->Fail("prompt",
               fmt::format("has {} prompts, the limit is {}", prompt->size(), options.max_prompts));
  } else {
    for (size_t i = 0; i < prompt->size() && body->ok(); ++i) {
      AddPrompt((*prompt)[i], fmt::format("prompt[{}]", i), body->reading(), api);
    }
  }
}

void ReadCompletionLogprobs(Fields* body, v1::OutputOptions* output, ApiRequest* api) {
  // vLLM takes false and true as well.
  const Json* const value = body->Find("logprobs");
  if (value == nullptr) return;
  if (value->is_boolean()) {
    api->logprobs = value->get<bool>();
  } else if (const auto count = body->Uint32("logprobs")) {
    api->logprobs = true;
    api->top_logprobs = *count;
  }
  if (!api->logprobs) return;
  output->set_logprobs(true);
  output->set_top_logprobs(api->top_logprobs);
}

// Reads max_tokens. 0 is allowed with echo: the prompt's log-probabilities alone.
void ReadCompletionLength(Fields* body, v1::StoppingCriteria* stopping, ApiRequest* api) {
  const uint32_t max_tokens = body->Uint32("max_tokens").value_or(kDefaultMaxTokens);
  if (max_tokens == 0 && !api->echo) {
    body->Fail("max_tokens", "is 0, which needs \"echo\": true");
  }
  api->drop_output = max_tokens == 0;
  stopping->set_max_new_tokens(std::max(max_tokens, 1U));
}

void CheckBestOf(Fields* body, const v1::GenerateRequest& request) {
  const auto best_of = body->Uint32("best_of", 1, kMaxChoices);
  const uint32_t n = std::max(request.sampling().num_sequences(), 1U);
  if (best_of && *best_of != n) {
    body->Fail("best_of", fmt::format("is {}, it must equal n, which is {}", *best_of, n));
  }
}

}  // namespace

absl::StatusOr<ApiRequest> ReadCompletionRequest(const Json& body_json, const ModelTraits&,
                                                 const MappingOptions& options) {
  Reading reading{absl::OkStatus(), options.ignore_unknown_fields};
  Fields body(body_json, "", &reading);
  ApiRequest api;
  v1::GenerateRequest common;  // of all prompts
  ReadPrompts(&body, options, &api);
  api.echo = body.Bool("echo").value_or(false);
  ReadSampling(&body, &common);
  ReadStopping(&body, &common);
  ReadCompletionLength(&body, common.mutable_stopping(), &api);
  CheckBestOf(&body, common);
  ReadConstraint(&body, &common);
  ReadDelivery(&body, &common, &api);
  ReadCompletionLogprobs(&body, common.mutable_output(), &api);
  body.Refuse("suffix", "is not supported", "");
  body.RefuseUnknown();
  if (!reading.status.ok()) return reading.status;
  for (size_t i = 0; i < api.calls.size(); ++i) {
    v1::GenerateRequest& call = api.calls[i];
    call.MergeFrom(common);
    const bool shows_ids = call.has_prompt_token_ids() && api.echo;
    call.mutable_output()->set_prompt_logprobs(api.echo && (api.logprobs || shows_ids));
  }
  return api;
}

}  // namespace tlm::openai
