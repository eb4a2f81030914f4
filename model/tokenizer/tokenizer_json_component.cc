#include "model/tokenizer/tokenizer_json_component.h"

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/text/utf8.h"
#include "model/tokenizer/vocabulary.h"

namespace tlm {
namespace {

using nlohmann::json;

// Appends the component with Sequences dissolved. Recursion ends because ParseJson bounds depth.
absl::Status Flatten(const json& value, const std::string& name, const char* members,
                     std::vector<Component>* result) {
  TLM_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Open(value, name));
  TLM_ASSIGN_OR_RETURN(std::string type, fields.String("type", ""));
  if (type.empty()) return fields.Missing("type");
  if (type != "Sequence") {
    result->push_back({std::move(fields), std::move(type)});
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const json* const array, fields.RequiredArray(members));
  for (size_t i = 0; i < array->size(); ++i) {
    TLM_RETURN_IF_ERROR(
        Flatten((*array)[i], fmt::format("{}[{}]", fields.Name(members), i), members, result));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Component>> ReadComponents(const JsonFields& root, const char* key,
                                                      const char* members) {
  std::vector<Component> result;
  if (const json* const value = root.Find(key); value != nullptr) {
    TLM_RETURN_IF_ERROR(Flatten(*value, root.Name(key), members, &result));
  }
  return result;
}

absl::Status UnsupportedComponent(const Component& component, std::string_view supported) {
  return Unimplemented("{} {} is not supported, only {}", component.fields.Name("type"),
                       Quoted(component.type), supported);
}

absl::StatusOr<ComponentPattern> ReadPattern(const JsonFields& component) {
  TLM_ASSIGN_OR_RETURN(const JsonFields pattern, component.RequiredObject("pattern"));
  ComponentPattern result;
  result.is_literal = pattern.Has("String");
  TLM_ASSIGN_OR_RETURN(result.text, pattern.String(result.is_literal ? "String" : "Regex", ""));
  if (result.text.empty()) {
    return InvalidArgument("{} has neither a Regex nor a String that is not empty",
                           component.Name("pattern"));
  }
  return result;
}

absl::StatusOr<std::string> ReadCharacter(const JsonFields& component, std::string_view key) {
  TLM_ASSIGN_OR_RETURN(std::string text, component.String(key, ""));
  if (text.empty() || FirstCharacter(text).length != text.size()) {
    return WrongJsonType(component.Name(key), json(text), "one character");
  }
  return text;
}

absl::StatusOr<int32_t> ReadTokenId(const json& value, std::string_view name) {
  const bool is_valid =
      value.is_number_unsigned() && value.get<uint64_t>() < static_cast<uint64_t>(kMaxTokenIds);
  if (!is_valid) {
    return WrongJsonType(name, value, fmt::format("an integer between 0 and {}", kMaxTokenIds - 1));
  }
  return static_cast<int32_t>(value.get<uint64_t>());
}

// "add_prefix_space" is what older files have instead of "prepend_scheme".
absl::StatusOr<MetaspaceOptions> ReadMetaspace(const JsonFields& component) {
  MetaspaceOptions result;
  TLM_ASSIGN_OR_RETURN(result.replacement, ReadCharacter(component, "replacement"));
  TLM_ASSIGN_OR_RETURN(result.split, component.Bool("split", true));
  TLM_ASSIGN_OR_RETURN(const bool prefix, component.Bool("add_prefix_space", true));
  TLM_ASSIGN_OR_RETURN(const std::string scheme, component.String("prepend_scheme", ""));
  if (scheme == "first") {
    result.prepend = PreTokenizerStep::kFirst;
  } else if (scheme == "never" || (scheme.empty() && !prefix)) {
    result.prepend = PreTokenizerStep::kNever;
  } else if (scheme != "always" && !scheme.empty()) {
    return WrongJsonType(component.Name("prepend_scheme"), json(scheme),
                         "'always', 'first' or 'never'");
  }
  if (!prefix && result.prepend != PreTokenizerStep::kNever) {
    return InvalidArgument("{} false contradicts prepend_scheme {}",
                           component.Name("add_prefix_space"), Quoted(scheme));
  }
  return result;
}

}  // namespace tlm
