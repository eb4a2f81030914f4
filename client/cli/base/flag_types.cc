#include "client/cli/base/flag_types.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/base/text.h"
#include "model/base/json.h"

namespace tlm::cli {
namespace {

// Accepts digits only: from_chars for an unsigned type accepts no sign.
std::optional<uint32_t> ParseId(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  uint32_t id = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

bool ParseIds(absl::string_view text, std::vector<uint32_t>* ids, std::string* error) {
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::optional<uint32_t> id = ParseId(part);
    if (!id) {
      *error = fmt::format("'{}' is not a token id (0 to {})", std::string(part), UINT32_MAX);
      return false;
    }
    ids->push_back(*id);
  }
  return true;
}

// The escapes of a StringList, and their characters.
constexpr std::string_view kEscapes = "nt,\\";
constexpr std::string_view kEscaped = "\n\t,\\";

using google::protobuf::util::JsonStringToMessage;
using google::protobuf::util::MessageToJsonString;

bool IsName(std::string_view text) {
  const auto is_part = [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; };
  return !text.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), is_part);
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
  // Protobuf's reader accepts unquoted texts, and takes quadratic time in the depth.
  constexpr int kMaxDepth = 32;
  if (!ParseJson(json, kMaxDepth).ok() || !JsonStringToMessage(json, &value).ok()) {
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
    } else {
      const size_t escape = ++i == text.size() ? kEscapes.npos : kEscapes.find(text[i]);
      if (escape == kEscapes.npos) {
        *error = "after a backslash comes one of n t , \\";
        return false;
      }
      list->values.back() += kEscaped[escape];
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
  std::vector<std::string> escaped;
  for (const std::string& value : list.values) {
    escaped.push_back(
        absl::StrReplaceAll(value, {{"\\", "\\\\"}, {",", "\\,"}, {"\n", "\\n"}, {"\t", "\\t"}}));
  }
  return absl::StrJoin(escaped, ",");
}

bool AbslParseFlag(absl::string_view text, TextList* list, std::string* error) {
  list->values.clear();
  if (text.empty()) return true;
  for (const absl::string_view part : absl::StrSplit(text, ';')) {
    if (part.empty()) {
      *error = "a text is empty";
      return false;
    }
    list->values.emplace_back(part);
  }
  return true;
}

std::string AbslUnparseFlag(const TextList& list) { return absl::StrJoin(list.values, ";"); }

bool AbslParseFlag(absl::string_view text, IdList* list, std::string* error) {
  list->ids.clear();
  return text.empty() || ParseIds(text, &list->ids, error);
}

std::string AbslUnparseFlag(const IdList& list) { return absl::StrJoin(list.ids, ","); }

bool AbslParseFlag(absl::string_view text, IdLists* lists, std::string* error) {
  lists->sequences.clear();
  if (text.empty()) return true;
  for (const absl::string_view part : absl::StrSplit(text, ';')) {
    if (!ParseIds(part, &lists->sequences.emplace_back(), error)) return false;
  }
  return true;
}

std::string AbslUnparseFlag(const IdLists& lists) {
  return absl::StrJoin(lists.sequences, ";",
                       [](std::string* out, const auto& ids) { *out += absl::StrJoin(ids, ","); });
}

bool AbslParseFlag(absl::string_view text, BiasList* list, std::string* error) {
  list->biases.clear();
  if (text.empty()) return true;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    const std::optional<uint32_t> id = ParseId(pair.first);
    float bias = 0;
    if (!id || !absl::SimpleAtof(pair.second, &bias)) {
      *error = fmt::format("'{}' is not of the form id:bias", std::string(part));
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
  return absl::StrJoin(list.biases, ",", [](std::string* out, const auto& pair) {
    *out += fmt::format("{}:{}", pair.first, pair.second);
  });
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
    // This fails only for a value that is not set, and parsing never makes one.
    if (!MessageToJsonString(value, &json).ok()) continue;
    if (!text.empty()) text += TemplateArguments::kSeparator;
    text += fmt::format("{}={}", name, json);
  }
  return text;
}

}  // namespace tlm::cli
