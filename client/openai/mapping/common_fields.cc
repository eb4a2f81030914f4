#include "client/openai/mapping/common_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

namespace tlm::openai {
namespace {

void ReadLogitBias(Fields* body, v1::SamplingParams* sampling) {
  const Json* const bias = body->Find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    body->Fail("logit_bias",
               fmt::format("is {}, it must be an object of numbers by token id", Shown(*bias)));
    return;
  }
  for (const auto& [key, value] : bias->items()) {
    uint32_t id = 0;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end) {
      body->Fail("logit_bias", fmt::format("has the key {}, keys are token ids", Shown(key)));
      return;
    }
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!value.is_number() || std::abs(number) > std::numeric_limits<float>::max()) {
      body->Fail("logit_bias",
                 fmt::format("has {} for token {}, it must be a number", Shown(value), id));
      return;
    }
    (*sampling->mutable_logit_bias())[id] = static_cast<float>(number);
  }
}

void ReadPenalties(Fields* body, v1::SamplingParams* sampling) {
  if (const auto value = body->Float("repetition_penalty")) {
    sampling->set_repetition_penalty(*value);
  }
  if (const auto value = body->Float("presence_penalty")) sampling->set_presence_penalty(*value);
  if (const auto value = body->Float("frequency_penalty")) sampling->set_frequency_penalty(*value);
}

bool HasConstraint(const v1::GenerateRequest& request) {
  return request.constraint_case() != v1::GenerateRequest::CONSTRAINT_NOT_SET;
}

// False, with an error, if there is a constraint already.
bool MayConstrain(Fields* fields, std::string_view key, const v1::GenerateRequest& request) {
  if (!HasConstraint(request)) return true;
  fields->Fail(key, "is a second constraint of the output: there may be one");
  return false;
}

void SetSchema(Fields* fields, std::string_view key, v1::GenerateRequest* request) {
  const Json* const schema = fields->Find(key);
  if (schema == nullptr || !MayConstrain(fields, key, *request)) return;
  request->set_json_schema(SchemaText(*schema, key, fields));
}

void SetChoices(Fields* fields, std::string_view key, v1::GenerateRequest* request) {
  if (!fields->Has(key) || !MayConstrain(fields, key, *request)) return;
  const std::vector<std::string> choices = fields->Strings(key, kMaxListed);
  if (choices.empty()) fields->Fail(key, "is empty: there must be a choice");
  for (const std::string& choice : choices) request->mutable_choices()->add_choices(choice);
}

void SetRegex(Fields* fields, std::string_view key, v1::GenerateRequest* request) {
  const auto text = fields->String(key);
  if (text && MayConstrain(fields, key, *request)) request->set_regex(*text);
}

void SetGrammar(Fields* fields, std::string_view key, v1::GenerateRequest* request) {
  const auto text = fields->String(key);
  if (text && MayConstrain(fields, key, *request)) request->set_grammar(*text);
}

void ReadStructuredOutputs(Fields* body, v1::GenerateRequest* request) {
  std::optional<Fields> outputs = body->Object("structured_outputs");
  if (!outputs) return;
  SetSchema(&*outputs, "json", request);
  SetRegex(&*outputs, "regex", request);
  SetChoices(&*outputs, "choice", request);
  SetGrammar(&*outputs, "grammar", request);
  if (outputs->Bool("json_object").value_or(false) &&
      MayConstrain(&*outputs, "json_object", *request)) {
    request->set_json_object(true);
  }
  outputs->Refuse("structural_tag", "is not supported here: use tools, or Generate of tlm.v1");
  outputs->Refuse("whitespace_pattern", "is not supported");
  if (outputs->Bool("disable_any_whitespace").value_or(false)) {
    request->mutable_json()->set_whitespace(v1::JSON_WHITESPACE_COMPACT);
  }
  outputs->NoEffect({"disable_fallback", "disable_additional_properties"});
  outputs->RefuseUnknown();
}

}  // namespace

std::string SchemaText(const Json& schema, std::string_view key, Fields* fields) {
  if (schema.is_object() || schema.is_boolean()) return Written(schema);
  // vLLM takes a schema that is written as a string, too.
  if (schema.is_string()) return schema.get<std::string>();
  fields->Fail(key, fmt::format("is {}, it must be a JSON Schema", Shown(schema)));
  return "";
}

void ReadSampling(Fields* body, v1::GenerateRequest* request) {
  v1::SamplingParams* const sampling = request->mutable_sampling();
  if (const auto value = body->Float("temperature")) sampling->set_temperature(*value);
  if (const auto value = body->Float("top_p")) sampling->set_top_p(*value);
  if (const auto value = body->Integer("top_k", -1, std::numeric_limits<int32_t>::max())) {
    sampling->set_top_k(*value < 0 ? 0 : static_cast<uint32_t>(*value));
  }
  if (const auto value = body->Float("min_p")) sampling->set_min_p(*value);
  if (const auto value = body->Float("typical_p")) sampling->set_typical_p(*value);
  ReadPenalties(body, sampling);
  if (const auto value = body->Bits64("seed")) sampling->set_seed(*value);
  if (const auto value = body->Uint32("n", 1, kMaxChoices)) sampling->set_num_sequences(*value);
  ReadLogitBias(body, sampling);
  for (const uint32_t id : body->Ids("allowed_token_ids", kMaxListed)) {
    sampling->add_allowed_token_ids(id);
  }
}

void ReadStopping(Fields* body, v1::GenerateRequest* request) {
  v1::StoppingCriteria* const stopping = request->mutable_stopping();
  for (const std::string& text : body->Strings("stop", kMaxListed)) {
    stopping->add_stop_strings(text);
  }
  for (const uint32_t id : body->Ids("stop_token_ids", kMaxListed)) {
    stopping->add_stop_token_ids(id);
  }
  if (const auto value = body->Uint32("min_tokens")) stopping->set_min_new_tokens(*value);
  stopping->set_ignore_eos(body->Bool("ignore_eos").value_or(false));
  stopping->set_include_stop_in_output(body->Bool("include_stop_str_in_output").value_or(false));
}

void ReadFormat(Fields* format, bool nested, v1::GenerateRequest* request) {
  const auto type = format->OneOf("type", {"text", "json_object", "json_schema"});
  if (!type) {
    format->Fail("type", "is missing: one of text, json_object, json_schema");
  } else if (*type == "json_object") {
    request->set_json_object(true);
  } else if (*type == "json_schema") {
    std::optional<Fields> inner;
    if (nested) {
      inner = format->Object("json_schema");
      if (!inner) format->Fail("json_schema", "is missing");
    }
    Fields* const schema = nested ? (inner ? &*inner : nullptr) : format;
    if (schema != nullptr) {
      schema->String("name");
      schema->String("description");
      schema->Bool("strict");
      if (!schema->Has("schema")) schema->Fail("schema", "is missing");
      SetSchema(schema, "schema", request);
      if (nested) schema->RefuseUnknown();
    }
  }
  format->RefuseUnknown();
}

void ReadConstraint(Fields* body, v1::GenerateRequest* request) {
  if (auto format = body->Object("response_format")) ReadFormat(&*format, true, request);
  SetRegex(body, "regex", request);
  SetGrammar(body, "grammar", request);
  SetSchema(body, "guided_json", request);
  SetRegex(body, "guided_regex", request);
  SetChoices(body, "guided_choice", request);
  SetGrammar(body, "guided_grammar", request);
  ReadStructuredOutputs(body, request);
  body->NoEffect({"guided_decoding_backend"});
  body->Refuse("guided_whitespace_pattern", "is not supported");
}

void ReadDelivery(Fields* body, v1::GenerateRequest* request, ApiRequest* api) {
  body->NoEffect({"model", "user", "safety_identifier", "metadata"});
  api->stream = body->Bool("stream").value_or(false);
  if (auto options = body->Object("stream_options")) {
    if (!api->stream) body->Fail("stream_options", "needs \"stream\": true");
    api->include_usage = options->Bool("include_usage").value_or(false);
    options->NoEffect({"include_obfuscation"});
    options->Refuse("continuous_usage_stats", "is not supported: the last chunk has the usage");
    options->RefuseUnknown();
  }
  // vLLM runs the smallest number first, the server the largest.
  constexpr int kMaxPriority = 100;
  if (const auto value = body->Integer("priority", -kMaxPriority, kMaxPriority)) {
    request->mutable_scheduling()->set_priority(static_cast<int32_t>(-*value));
  }
  if (const auto salt = body->String("cache_salt")) request->mutable_cache()->set_cache_salt(*salt);
  api->affinity_key = body->String("prompt_cache_key").value_or("");
  if (const auto value = body->Uint32("truncate_prompt_tokens", 1)) {
    request->set_truncate_prompt_tokens(*value);
  }
  if (const auto value = body->Bool("add_special_tokens")) request->set_add_special_tokens(*value);
  body->Refuse("store", "is true, but this server stores nothing");
  body->OneOf("service_tier", {"auto", "default"});
  body->Refuse("use_beam_search", "is not supported");
  body->Refuse("bad_words", "is not supported: use logit_bias");
  body->Refuse("length_penalty", "is not supported", 1.0);
  body->Refuse("prompt_logprobs", "is not supported: use echo and logprobs of /v1/completions");
  body->Refuse("return_tokens_as_token_ids", "is not supported");
  body->Refuse("return_token_ids", "is not supported");
  if (!body->Bool("skip_special_tokens").value_or(true)) {
    body->Fail("skip_special_tokens", "is false, which is not supported");
  }
  if (!body->Bool("spaces_between_special_tokens").value_or(true)) {
    body->Fail("spaces_between_special_tokens", "is false, which is not supported");
  }
}

}  // namespace tlm::openai
