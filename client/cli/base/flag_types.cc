#include "client/cli/base/flag_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "absl/strings/numbers.h"
#include "client/cli/base/text.h"

namespace tlm::cli {
namespace {

std::vector<std::string_view> Split(absl::string_view text, char separator) {
  std::vector<std::string_view> parts;
  std::string_view rest(text.data(), text.size());
  while (true) {
    const size_t end = rest.find(separator);
    parts.push_back(rest.substr(0, end));
    if (end == std::string_view::npos) return parts;
    rest.remove_prefix(end + 1);
  }
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1);
}

// Digits only: from_chars for an unsigned type takes no sign.
std::optional<uint32_t> ParseId(std::string_view text) {
  text = Trim(text);
  uint32_t id = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

bool ParseIds(std::string_view text, std::vector<uint32_t>* ids, std::string* error) {
  for (const std::string_view part : Split({text.data(), text.size()}, ',')) {
    const std::optional<uint32_t> id = ParseId(part);
    if (!id) {
      *error = fmt::format("'{}' is not a token id (0 to {})", part, UINT32_MAX);
      return false;
    }
    ids->push_back(*id);
  }
  return true;
}

std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\n') {
      escaped += "\\n";
    } else if (c == '\t') {
      escaped += "\\t";
    } else {
      if (c == '\\' || c == ',') escaped += '\\';
      escaped += c;
    }
  }
  return escaped;
}

// False for an escape that is not one.
bool AppendEscaped(char c, std::string* text) {
  switch (c) {
    case 'n':
      *text += '\n';
      return true;
    case 't':
      *text += '\t';
      return true;
    case ',':
    case '\\':
      *text += c;
      return true;
    default:
      return false;
  }
}

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

bool AbslParseFlag(absl::string_view text, OptionalText* optional, std::string* error) {
  optional->text = std::string(text);
  return true;
}

std::string AbslUnparseFlag(const OptionalText& optional) { return optional.text.value_or(""); }

bool AbslParseFlag(absl::string_view text, StringList* list, std::string* error) {
  list->values.clear();
  if (text.empty()) return true;
  list->values.emplace_back();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ',') {
      list->values.emplace_back();
    } else if (text[i] != '\\') {
      list->values.back() += text[i];
    } else if (++i == text.size() || !AppendEscaped(text[i], &list->values.back())) {
      *error = "after a backslash comes one of n t , \\";
      return false;
    }
  }
  for (const std::string& value : list->values) {
    if (value.empty()) {
      *error = "a text of the list is empty";
      return false;
    }
  }
  return true;
}

std::string AbslUnparseFlag(const StringList& list) {
  std::string text;
  for (const std::string& value : list.values) {
    if (!text.empty()) text += ',';
    text += Escape(value);
  }
  return text;
}

bool AbslParseFlag(absl::string_view text, IdList* list, std::string* error) {
  list->ids.clear();
  return text.empty() || ParseIds({text.data(), text.size()}, &list->ids, error);
}

std::string AbslUnparseFlag(const IdList& list) {
  return fmt::format("{}", fmt::join(list.ids, ","));
}

bool AbslParseFlag(absl::string_view text, IdLists* lists, std::string* error) {
  lists->sequences.clear();
  if (text.empty()) return true;
  for (const std::string_view part : Split(text, ';')) {
    if (!ParseIds(part, &lists->sequences.emplace_back(), error)) return false;
  }
  return true;
}

std::string AbslUnparseFlag(const IdLists& lists) {
  std::string text;
  for (const std::vector<uint32_t>& ids : lists.sequences) {
    if (!text.empty()) text += ';';
    text += fmt::format("{}", fmt::join(ids, ","));
  }
  return text;
}

bool AbslParseFlag(absl::string_view text, BiasList* list, std::string* error) {
  list->biases.clear();
  if (text.empty()) return true;
  for (const std::string_view part : Split(text, ',')) {
    const size_t colon = part.find(':');
    const std::optional<uint32_t> id = ParseId(part.substr(0, colon));
    float bias = 0;
    if (!id || colon == std::string_view::npos ||
        !absl::SimpleAtof({part.data() + colon + 1, part.size() - colon - 1}, &bias)) {
      *error = fmt::format("'{}' is not of the form id:bias", part);
      return false;
    }
    const bool known = std::any_of(list->biases.begin(), list->biases.end(),
                                   [&id](const auto& other) { return other.first == *id; });
    if (known) {
      *error = fmt::format("token id {} is given twice", *id);
      return false;
    }
    list->biases.emplace_back(*id, bias);
  }
  return true;
}

std::string AbslUnparseFlag(const BiasList& list) {
  std::string text;
  for (const auto& [id, bias] : list.biases) {
    if (!text.empty()) text += ',';
    text += fmt::format("{}:{}", id, bias);
  }
  return text;
}

bool AbslParseFlag(absl::string_view text, TimeSpan* span, std::string* error) {
  double seconds = 0;
  if (absl::SimpleAtod(text, &seconds)) {
    span->duration = absl::Seconds(seconds);
  } else if (!absl::ParseDuration(text, &span->duration)) {
    *error = "a time span is a number of seconds, or like 1m30s";
    return false;
  }
  if (std::isnan(seconds) || span->duration < absl::ZeroDuration()) {
    *error = "a time span is not negative";
    return false;
  }
  return true;
}

std::string AbslUnparseFlag(const TimeSpan& span) { return absl::FormatDuration(span.duration); }

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
