#include "client/cli/base/template_arguments.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;

bool IsName(std::string_view text) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || (c >= '0' && c <= '9');
  });
}

// Strict, unlike Protobuf's reader, which takes unquoted texts; and bounded in depth, for which
// that one takes quadratic time.
bool IsJson(const std::string& text) {
  constexpr int kMaxDepth = 32;
  bool too_deep = false;
  const auto guard = [&too_deep](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  const nlohmann::json value = nlohmann::json::parse(text, guard, /*allow_exceptions=*/false);
  return !too_deep && !value.is_discarded();
}

bool ParseArgument(std::string_view text, TemplateArguments* arguments, std::string* error) {
  constexpr size_t kMaxShownColumns = 60;
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == std::string_view::npos || !IsName(name)) {
    *error =
        fmt::format("{} is not of the form NAME=JSON", Shortened(Quoted(text), kMaxShownColumns));
    return false;
  }
  const std::string json(text.substr(equals + 1));
  google::protobuf::Value value;
  if (!IsJson(json) || !JsonStringToMessage(json, &value).ok()) {
    *error = fmt::format("{} is not a JSON value (a text stands in \"double quotes\")",
                         Shortened(Quoted(json), kMaxShownColumns));
    return false;
  }
  (*arguments->values.mutable_fields())[std::string(name)] = std::move(value);
  return true;
}

}  // namespace

bool AbslParseFlag(absl::string_view text, TemplateArguments* arguments, std::string* error) {
  arguments->values.Clear();
  std::string_view rest(text.data(), text.size());
  while (!rest.empty()) {
    const size_t end = rest.find(TemplateArguments::kSeparator);
    if (!ParseArgument(rest.substr(0, end), arguments, error)) return false;
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  return true;
}

std::string AbslUnparseFlag(const TemplateArguments& arguments) {
  const std::map<std::string, google::protobuf::Value> sorted(arguments.values.fields().begin(),
                                                              arguments.values.fields().end());
  std::string text;
  for (const auto& [name, value] : sorted) {
    std::string json;
    // Fails only for a value that is not set, which parsing never makes.
    if (!MessageToJsonString(value, &json).ok()) continue;
    if (!text.empty()) text += TemplateArguments::kSeparator;
    text += fmt::format("{}={}", name, json);
  }
  return text;
}

}  // namespace tlm::cli
