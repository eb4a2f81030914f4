#include "model/tokenizer/tokenizer_json_component.h"

#include <cstddef>
#include <utility>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/tokenizer/tokenizer_json_fields.h"
#include "model/text/utf8.h"

namespace tlm {
namespace {

using nlohmann::json;

// Appends the component with Sequences dissolved. Recursion ends because ParseJson bounds depth.
absl::Status Flatten(const json& value, const std::string& name, const char* members,
                     std::vector<Component>* result) {
  if (!value.is_object()) return WrongJsonType("", name, value, "an object");
  Component component{name + ".", "", &value};
  TLM_ASSIGN_OR_RETURN(component.type, ReadString(value, component.where, "type"));
  if (component.type.empty()) return InvalidArgument("{}type is missing", component.where);
  if (component.type != "Sequence") {
    result->push_back(std::move(component));
    return absl::OkStatus();
  }
  TLM_ASSIGN_OR_RETURN(const json* const array, ReadArray(value, component.where, members));
  for (size_t i = 0; i < array->size(); ++i) {
    TLM_RETURN_IF_ERROR(Flatten((*array)[i], fmt::format("{}{}[{}]", component.where, members, i),
                                members, result));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Component>> ReadComponents(const json& root, const char* key,
                                                      const char* members) {
  std::vector<Component> result;
  if (const json* const value = FindMember(root, key); value != nullptr) {
    TLM_RETURN_IF_ERROR(Flatten(*value, key, members, &result));
  }
  return result;
}

absl::Status UnsupportedComponent(const Component& component, std::string_view supported) {
  return Unimplemented("{}type {} is not supported, only {}", component.where,
                       Quoted(component.type), supported);
}

absl::StatusOr<ComponentPattern> ReadPattern(const Component& component) {
  TLM_ASSIGN_OR_RETURN(const json* const pattern,
                       ReadObject(*component.object, component.where, "pattern"));
  ComponentPattern result;
  result.is_literal = FindMember(*pattern, "String") != nullptr;
  TLM_ASSIGN_OR_RETURN(result.text, ReadString(*pattern, component.where + "pattern.",
                                               result.is_literal ? "String" : "Regex"));
  if (result.text.empty()) {
    return InvalidArgument("{}pattern has neither a Regex nor a String that is not empty",
                           component.where);
  }
  return result;
}

absl::StatusOr<std::string> ReadCharacter(const Component& component, std::string_view key) {
  TLM_ASSIGN_OR_RETURN(std::string text, ReadString(*component.object, component.where, key));
  if (text.empty() || FirstCharacter(text).length != text.size()) {
    return InvalidArgument("{}{} is {}, it must be one character", component.where, key,
                           Quoted(text));
  }
  return text;
}

// "add_prefix_space" is what older files have instead of "prepend_scheme".
absl::StatusOr<MetaspaceOptions> ReadMetaspace(const Component& component) {
  const json& object = *component.object;
  MetaspaceOptions result;
  TLM_ASSIGN_OR_RETURN(result.replacement, ReadCharacter(component, "replacement"));
  TLM_ASSIGN_OR_RETURN(result.split, ReadBool(object, component.where, "split", true));
  TLM_ASSIGN_OR_RETURN(const bool prefix,
                       ReadBool(object, component.where, "add_prefix_space", true));
  TLM_ASSIGN_OR_RETURN(const std::string scheme,
                       ReadString(object, component.where, "prepend_scheme"));
  if (scheme == "first") {
    result.prepend = PreTokenizerStep::kFirst;
  } else if (scheme == "never" || (scheme.empty() && !prefix)) {
    result.prepend = PreTokenizerStep::kNever;
  } else if (scheme != "always" && !scheme.empty()) {
    return InvalidArgument("{}prepend_scheme is {}, it must be 'always', 'first' or 'never'",
                           component.where, Quoted(scheme));
  }
  if (!prefix && result.prepend != PreTokenizerStep::kNever) {
    return InvalidArgument("{}add_prefix_space false contradicts prepend_scheme {}",
                           component.where, Quoted(scheme));
  }
  return result;
}

}  // namespace tlm
