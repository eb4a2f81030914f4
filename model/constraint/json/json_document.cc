#include "model/constraint/json/json_document.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_set.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/base/json_builder.h"
#include "model/constraint/bytes/number_regex.h"

namespace tlm {
namespace {

// Numbers are kept as texts, even if no double can hold them. The parser reads them as long
// doubles.
using WideJson =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, int64_t, uint64_t, long double>;

class DocumentBuilder {
 public:
  DocumentBuilder(std::string_view text, int max_depth) : text_(text), max_depth_(max_depth) {}

  bool null() { return Add({}) != nullptr; }
  bool boolean(bool value) {
    return Add({.kind = JsonKind::kBoolean, .boolean = value}) != nullptr;
  }
  bool number_integer(int64_t value) { return Number(std::to_string(value)); }
  bool number_unsigned(uint64_t value) { return Number(std::to_string(value)); }
  bool number_float(long double, const std::string& text) { return Number(text); }
  bool string(std::string& value) {
    return Add({.kind = JsonKind::kString, .text = std::move(value)}) != nullptr;
  }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(size_t) { return Open(JsonKind::kObject); }
  bool start_array(size_t) { return Open(JsonKind::kArray); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    if (!names_.back().insert(name).second) {
      status = InvalidArgument("key {} occurs twice", Quoted(name));
      return false;
    }
    open_.back()->members.emplace_back(std::move(name), JsonValue());
    return true;
  }
  bool parse_error(size_t position, const std::string&, const WideJson::exception& error) {
    status = JsonError(text_, position, error);
    return false;
  }

  JsonValue root;
  absl::Status status;

 private:
  bool Number(std::string text) {
    return Add({.kind = JsonKind::kNumber, .text = std::move(text)}) != nullptr;
  }
  JsonValue* Add(JsonValue value) {
    if (open_.empty()) {
      root = std::move(value);
      return &root;
    }
    JsonValue& parent = *open_.back();
    if (parent.is_object()) {
      parent.members.back().second = std::move(value);
      return &parent.members.back().second;
    }
    parent.items.push_back(std::move(value));
    return &parent.items.back();
  }
  bool Open(JsonKind kind) {
    if (open_.size() >= static_cast<size_t>(max_depth_)) {
      status = InvalidArgument("nested deeper than {} arrays and objects", max_depth_);
      return false;
    }
    // Only the last child of a value is open, so its address stays until it is closed.
    open_.push_back(Add({.kind = kind}));
    names_.emplace_back();
    return true;
  }
  bool Close() {
    open_.pop_back();
    names_.pop_back();
    return true;
  }

  const std::string_view text_;
  const int max_depth_;
  std::vector<JsonValue*> open_;
  std::vector<absl::flat_hash_set<std::string>> names_;  // names of members, by open object
};

void AppendCanonical(const JsonValue& value, std::string& text) {
  switch (value.kind) {
    case JsonKind::kNull:
      text += "null";
      return;
    case JsonKind::kBoolean:
      text += value.boolean ? "true" : "false";
      return;
    case JsonKind::kNumber: {
      const auto decimal = Decimal::Parse(value.text);
      text += !decimal.ok()        ? value.text
              : decimal->is_zero() ? "0"
                                   : (decimal->is_negative() ? "-" : "") + decimal->digits() + "e" +
                                         std::to_string(decimal->exponent());
      return;
    }
    case JsonKind::kString:
      text +=
          nlohmann::json(value.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
      return;
    case JsonKind::kArray:
      text += '[';
      for (const JsonValue& item : value.items) {
        AppendCanonical(item, text);
        text += ',';
      }
      text += ']';
      return;
    case JsonKind::kObject: {
      std::vector<const JsonValue::Member*> sorted;
      for (const JsonValue::Member& member : value.members) sorted.push_back(&member);
      std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->first < b->first; });
      text += '{';
      for (const JsonValue::Member* member : sorted) {
        AppendCanonical({.kind = JsonKind::kString, .text = member->first}, text);
        text += ':';
        AppendCanonical(member->second, text);
        text += ',';
      }
      text += '}';
      return;
    }
  }
}

}  // namespace

const JsonValue* JsonValue::Find(std::string_view name) const {
  for (const Member& member : members) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

absl::StatusOr<JsonValue> ParseJsonDocument(std::string_view text, int max_depth) {
  TLM_RETURN_IF_ERROR(CheckNoZeroByte(text));
  DocumentBuilder builder(text, max_depth);
  if (!WideJson::sax_parse(text, &builder)) return builder.status;
  return std::move(builder.root);
}

std::string CanonicalJson(const JsonValue& value) {
  std::string text;
  AppendCanonical(value, text);
  return text;
}

}  // namespace tlm
