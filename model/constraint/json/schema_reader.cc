#include "model/constraint/json/schema_reader.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/bytes/char_set.h"
#include "model/constraint/bytes/number_regex.h"
#include "model/constraint/bytes/pattern.h"
#include "model/constraint/json/formats.h"
#include "model/constraint/json/schema_index.h"
#include "model/constraint/json/schema_unevaluated.h"

namespace tlm {
namespace {

// Validators disagree whether 1.0 is an integer; in draft 4 it depends on how it is written.
Formula Integers(SchemaDraft draft, FormulaSet& formulas, RegexSet& regexes) {
  const bool by_value = formulas.form() == TextForm::kJsonAny && draft != SchemaDraft::kDraft4;
  return formulas.Of({.kind = Atom::Kind::kNumber,
                      .regex = NumberRegex(regexes, {.integer = true},
                                           by_value ? TextForm::kJsonAny : TextForm::kJson),
                      .integers = !by_value});
}

}  // namespace

absl::StatusOr<Formula> SchemaReader::ReadAll() {
  TLM_ASSIGN_OR_RETURN(const Formula root, Reference(index_.root()));
  while (!unread_.empty()) {
    const auto [reference, place] = unread_.back();
    unread_.pop_back();
    TLM_ASSIGN_OR_RETURN(const Formula formula, Read(place));
    formulas_.Define(reference, formula);
  }
  if (const auto loop = formulas_.EmptyLoop()) {
    return InvalidArgument("$ref at {}: the schema refers to itself and to nothing else",
                           reference_names_[static_cast<size_t>(*loop - first_reference_)]);
  }
  return root;
}

absl::Status SchemaReader::CheckFull(const Schema& schema) const {
  if (!formulas_.full() && !regexes_.full()) return absl::OkStatus();
  return At(schema, "schema",
            ResourceExhausted("up to here the schema takes {} formulas and {} expressions, which "
                              "is more than its limit of memory",
                              formulas_.size(), regexes_.size()));
}

absl::StatusOr<Formula> SchemaReader::Reference(const Place& target) {
  const auto [found, is_new] = references_.try_emplace(target.value, kFalse);
  if (is_new) {
    found->second = formulas_.NewReference();
    reference_names_.push_back(target.pointer.empty() ? "the root" : target.pointer);
    unread_.emplace_back(found->second, target);
  }
  return found->second;
}

absl::StatusOr<Formula> SchemaReader::ReadChild(const Schema& schema, const JsonValue& child,
                                                const std::string& below) {
  return Read({&child, schema.place.base, schema.place.pointer + below});
}

absl::StatusOr<Formula> SchemaReader::Read(const Place& place) {
  TLM_RETURN_IF_ERROR(budget_.Spend(20, place.pointer));
  const JsonValue& value = *place.value;
  if (value.is_boolean()) return value.boolean ? kTrue : kFalse;
  Schema schema = {place, {}};
  if (!value.is_object()) return Wrong(schema, "schema", "is neither an object nor a boolean");
  schema.place.base = index_.BaseOf(value, place.base);
  TLM_RETURN_IF_ERROR(ReadReferences(schema));
  const bool reference_alone =
      index_.draft() <= SchemaDraft::kDraft7 && value.Find("$ref") != nullptr;
  if (!reference_alone) {
    TLM_RETURN_IF_ERROR(ReadTypes(schema));
    TLM_RETURN_IF_ERROR(ReadNumbers(schema));
    TLM_RETURN_IF_ERROR(ReadStrings(schema));
    TLM_RETURN_IF_ERROR(ReadArrays(schema));
    TLM_RETURN_IF_ERROR(ReadContains(schema));
    TLM_RETURN_IF_ERROR(ReadProperties(schema));
    TLM_RETURN_IF_ERROR(ReadObjects(schema));
    TLM_RETURN_IF_ERROR(ReadLogic(schema));
    TLM_RETURN_IF_ERROR(ReadUnevaluated(schema, UnevaluatedKind::kProperties));
    TLM_RETURN_IF_ERROR(ReadUnevaluated(schema, UnevaluatedKind::kItems));
  }
  TLM_RETURN_IF_ERROR(CheckFull(schema));
  return formulas_.And(schema.all);
}

absl::StatusOr<std::vector<Formula>> SchemaReader::ReadList(const Schema& schema,
                                                            std::string_view keyword,
                                                            const JsonValue& list) {
  if (!list.is_array()) return Wrong(schema, keyword, "is not an array of schemas");
  std::vector<Formula> formulas;
  for (size_t i = 0; i < list.items.size(); ++i) {
    TLM_ASSIGN_OR_RETURN(
        const Formula formula,
        ReadChild(schema, list.items[i], "/" + std::string(keyword) + "/" + std::to_string(i)));
    formulas.push_back(formula);
  }
  return formulas;
}

absl::Status SchemaReader::ReadReferences(Schema& schema) {
  for (const std::string_view keyword : {"$ref", "$dynamicRef"}) {
    const JsonValue* reference = schema.Find(keyword);
    if (reference == nullptr) continue;
    if (!reference->is_string()) return Wrong(schema, keyword, "is not a string");
    auto place = keyword == "$ref" ? index_.Resolve(reference->text, schema.place.base)
                                   : index_.ResolveDynamic(reference->text, schema.place.base);
    if (!place.ok()) return At(schema, keyword, place.status());
    TLM_ASSIGN_OR_RETURN(const Formula formula, Reference(*place));
    schema.all.push_back(formula);
  }
  if (schema.Find("$recursiveRef") != nullptr) {
    return Wrong(schema, "$recursiveRef", "is not supported");
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadLogic(Schema& schema) {
  for (const std::string_view keyword : {"allOf", "anyOf", "oneOf"}) {
    const JsonValue* list = schema.Find(keyword);
    if (list == nullptr) continue;
    TLM_ASSIGN_OR_RETURN(const std::vector<Formula> parts, ReadList(schema, keyword, *list));
    if (parts.empty()) return Wrong(schema, keyword, "is empty");
    schema.all.push_back(keyword == "allOf"   ? formulas_.And(parts)
                         : keyword == "anyOf" ? formulas_.Or(parts)
                                              : formulas_.One(parts));
  }
  if (const JsonValue* negated = schema.Find("not")) {
    TLM_ASSIGN_OR_RETURN(const Formula formula, ReadChild(schema, *negated, "/not"));
    schema.all.push_back(formulas_.Not(formula));
  }
  const JsonValue* condition = schema.Find("if");
  if (condition == nullptr || index_.draft() < SchemaDraft::kDraft7) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const Formula when, ReadChild(schema, *condition, "/if"));
  for (const std::string_view keyword : {"then", "else"}) {
    const JsonValue* branch = schema.Find(keyword);
    if (branch == nullptr) continue;
    TLM_ASSIGN_OR_RETURN(const Formula formula,
                         ReadChild(schema, *branch, "/" + std::string(keyword)));
    const Formula otherwise = keyword == "then" ? formulas_.Not(when) : when;
    schema.all.push_back(formulas_.Or(otherwise, formula));
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadTypes(Schema& schema) {
  if (const JsonValue* type = schema.Find("type")) {
    const std::vector<JsonValue> one = {*type};
    std::vector<Formula> any;
    if (!type->is_string() && !type->is_array()) {
      return Wrong(schema, "type", "is neither a string nor an array");
    }
    for (const JsonValue& name : type->is_array() ? type->items : one) {
      constexpr std::array<std::string_view, 6> kNames = {"null",   "boolean", "number",
                                                          "string", "array",   "object"};
      const auto found = std::find(kNames.begin(), kNames.end(), name.text);
      if (name.is_string() && found != kNames.end()) {
        any.push_back(formulas_.OfTypes(1u << (found - kNames.begin())));
      } else if (name.is_string() && name.text == "integer") {
        any.push_back(formulas_.And(formulas_.OfTypes(TypeBit(JsonKind::kNumber)),
                                    Integers(index_.draft(), formulas_, regexes_)));
      } else {
        return Wrong(schema, "type", "names no type of JSON: " + Quoted(name.text));
      }
    }
    schema.all.push_back(formulas_.Or(any));
  }
  if (const JsonValue* value = schema.Find("const");
      value != nullptr && index_.draft() != SchemaDraft::kDraft4) {
    schema.all.push_back(EqualTo(*value, formulas_, regexes_));
  }
  if (const JsonValue* values = schema.Find("enum")) {
    if (!values->is_array()) return Wrong(schema, "enum", "is not an array");
    std::vector<Formula> any;
    std::vector<ByteRegex> texts;  // all strings become one expression
    for (const JsonValue& value : values->items) {
      TLM_RETURN_IF_ERROR(budget_.Spend(10, schema.place.pointer + "/enum"));
      if (value.is_string()) {
        texts.push_back(JsonTextRegex(regexes_, EncodeText(value.text, TextForm::kJson), form_));
      } else {
        any.push_back(EqualTo(value, formulas_, regexes_));
      }
    }
    if (!texts.empty()) {
      any.push_back(
          formulas_.And(formulas_.OfTypes(TypeBit(JsonKind::kString)),
                        formulas_.Of({.kind = Atom::Kind::kString, .regex = regexes_.Or(texts)})));
    }
    schema.all.push_back(formulas_.Or(any));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Decimal>> SchemaReader::NumberOf(const Schema& schema,
                                                              std::string_view keyword) {
  const JsonValue* value = schema.Find(keyword);
  if (value == nullptr || value->is_boolean()) return std::nullopt;
  if (!value->is_number()) return Wrong(schema, keyword, "is not a number");
  const auto decimal = Decimal::Parse(value->text);
  if (!decimal.ok()) return At(schema, keyword, decimal.status());
  return *decimal;
}

absl::Status SchemaReader::ReadNumbers(Schema& schema) {
  NumberRange range;
  TLM_ASSIGN_OR_RETURN(range.min, NumberOf(schema, "minimum"));
  TLM_ASSIGN_OR_RETURN(range.max, NumberOf(schema, "maximum"));
  const auto is_set = [&](std::string_view keyword) {
    const JsonValue* value = schema.Find(keyword);
    return value != nullptr && value->is_boolean() && value->boolean;
  };
  // In draft 4 the keyword is a boolean: the bound itself is excluded.
  range.min_exclusive = is_set("exclusiveMinimum");
  range.max_exclusive = is_set("exclusiveMaximum");
  const auto add = [&](const NumberRange& bounds) {
    if (!bounds.min && !bounds.max) return;
    schema.all.push_back(formulas_.Of({.kind = Atom::Kind::kNumber,
                                       .regex = NumberRegex(regexes_, bounds, form_),
                                       .exclusive = bounds.min_exclusive || bounds.max_exclusive}));
  };
  add(range);
  NumberRange exclusive = {.min_exclusive = true, .max_exclusive = true};
  TLM_ASSIGN_OR_RETURN(exclusive.min, NumberOf(schema, "exclusiveMinimum"));
  TLM_ASSIGN_OR_RETURN(exclusive.max, NumberOf(schema, "exclusiveMaximum"));
  add(exclusive);
  TLM_ASSIGN_OR_RETURN(const std::optional<Decimal> divisor, NumberOf(schema, "multipleOf"));
  if (!divisor) return absl::OkStatus();
  if (divisor->is_negative() || divisor->is_zero()) {
    return Wrong(schema, "multipleOf", "must be above 0");
  }
  schema.all.push_back(
      formulas_.Of({.kind = Atom::Kind::kMultiple,
                    .regex = MultipleRegex(regexes_, *divisor, form_).value_or(RegexSet::kAny),
                    .divisor = *divisor}));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<int64_t>> SchemaReader::CountOf(const Schema& schema,
                                                             std::string_view keyword) {
  TLM_ASSIGN_OR_RETURN(const std::optional<Decimal> value, NumberOf(schema, keyword));
  if (!value) return std::nullopt;
  int64_t count = 0;
  if (value->is_negative() || !value->is_integer() ||
      !absl::SimpleAtoi(value->IntegerDigits(), &count)) {
    return Wrong(schema, keyword,
                 "is " + schema.Find(keyword)->text + "; it must be an integer >= 0");
  }
  return count;
}

absl::StatusOr<std::optional<std::pair<int64_t, int64_t>>> SchemaReader::Bounds(
    const Schema& schema, std::string_view least, std::string_view most) {
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> min, CountOf(schema, least));
  TLM_ASSIGN_OR_RETURN(const std::optional<int64_t> max, CountOf(schema, most));
  if (!min && !max) return std::nullopt;
  return std::pair(min.value_or(0), max.value_or(Atom::kUnbounded));
}

absl::StatusOr<ByteRegex> SchemaReader::ReadPattern(const Schema& schema, std::string_view keyword,
                                                    std::string_view pattern) {
  TLM_RETURN_IF_ERROR(budget_.Spend(50 + 2 * static_cast<int64_t>(pattern.size()),
                                    schema.place.pointer + "/" + std::string(keyword)));
  auto regex = ParsePattern(regexes_, pattern, {.whole = false, .form = form_});
  if (!regex.ok()) return At(schema, keyword, regex.status());
  return regex;
}

absl::Status SchemaReader::ReadStrings(Schema& schema) {
  const auto add = [&](ByteRegex regex) {
    schema.all.push_back(formulas_.Of({.kind = Atom::Kind::kString, .regex = regex}));
  };
  TLM_ASSIGN_OR_RETURN(const auto bounds, Bounds(schema, "minLength", "maxLength"));
  if (bounds && bounds->first > bounds->second) {
    add(RegexSet::kNone);  // no length is within the bounds
  } else if (bounds) {
    constexpr int64_t kMax = 1 << 20;
    if (bounds->first > kMax) return Wrong(schema, "minLength", "is above 1,048,576");
    add(TextLengthRegex(regexes_, bounds->first,
                        bounds->second > kMax ? kNoMaxLength : bounds->second, form_));
  }
  if (const JsonValue* pattern = schema.Find("pattern")) {
    if (!pattern->is_string()) return Wrong(schema, "pattern", "is not a string");
    TLM_ASSIGN_OR_RETURN(const ByteRegex regex, ReadPattern(schema, "pattern", pattern->text));
    add(regex);
  }
  if (const JsonValue* format = schema.Find("format"); format != nullptr && format->is_string()) {
    if (const auto regex = FormatRegex(regexes_, format->text, form_)) {
      schema.all.push_back(formulas_.Of(
          {.kind = Atom::Kind::kString,
           .regex = *regex,
           .disputed = DisputedFormatRegex(regexes_, format->text, index_.draft(), form_)}));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Formula> ReadSchema(const JsonValue& schema, FormulaSet& formulas, RegexSet& regexes,
                                   Budget& budget) {
  TLM_ASSIGN_OR_RETURN(const SchemaIndex index, SchemaIndex::Build(schema));
  SchemaReader reader(index, OtherDrafts::kApply, formulas, regexes, budget);
  TLM_ASSIGN_OR_RETURN(const Formula root, reader.ReadAll());
  if (!reader.has_other_drafts()) return root;
  // A document must be valid by both readings.
  TLM_ASSIGN_OR_RETURN(
      const Formula ignoring,
      SchemaReader(index, OtherDrafts::kIgnore, formulas, regexes, budget).ReadAll());
  return formulas.And(root, ignoring);
}

}  // namespace tlm
