// Reads the keywords of arrays and objects.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/errors.h"
#include "model/base/json.h"
#include "model/constraint/json/schema_reader.h"

namespace tlm {

absl::Status SchemaReader::ReadArrays(Schema& schema) {
  ItemRule rule;
  const JsonValue* items = schema.Find("items");
  const bool list = items != nullptr && items->is_array();
  const bool prefix = schema.Find("prefixItems") != nullptr && index_.draft() == SchemaDraft::k2020;
  if (prefix || list) {
    const std::string_view keyword = prefix ? "prefixItems" : "items";
    TLM_ASSIGN_OR_RETURN(rule.first, ReadList(schema, keyword, *schema.Find(keyword)));
  }
  const JsonValue* others = list ? schema.Find("additionalItems") : items;
  if (others != nullptr && !others->is_array()) {
    TLM_ASSIGN_OR_RETURN(rule.others,
                         ReadChild(schema, *others, list ? "/additionalItems" : "/items"));
  }
  if (rule.others != kTrue || !rule.first.empty()) {
    schema.all.push_back(formulas_.Of(
        {.kind = Atom::Kind::kItems, .items = std::make_shared<const ItemRule>(std::move(rule))}));
  }
  TLM_ASSIGN_OR_RETURN(const auto bounds, Bounds(schema, "minItems", "maxItems"));
  if (bounds) {
    schema.all.push_back(
        formulas_.Of({.kind = Atom::Kind::kLength, .min = bounds->first, .max = bounds->second}));
  }
  if (const JsonValue* unique = schema.Find("uniqueItems")) {
    if (!unique->is_boolean()) return Wrong(schema, "uniqueItems", "is not a boolean");
    if (unique->boolean) schema.all.push_back(formulas_.Of({.kind = Atom::Kind::kUnique}));
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadContains(Schema& schema) {
  const JsonValue* contains = schema.Find("contains");
  if (contains == nullptr || index_.draft() == SchemaDraft::kDraft4) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const Formula formula, ReadChild(schema, *contains, "/contains"));
  std::pair<int64_t, int64_t> bounds = {1, Atom::kUnbounded};
  if (index_.draft() >= SchemaDraft::k2019) {
    TLM_ASSIGN_OR_RETURN(const auto given, Bounds(schema, "minContains", "maxContains"));
    if (given) bounds.second = given->second;
    if (given && schema.Find("minContains") != nullptr) bounds.first = given->first;
  }
  schema.all.push_back(formulas_.Of({.kind = Atom::Kind::kContains,
                                     .schema = formula,
                                     .min = bounds.first,
                                     .max = bounds.second}));
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadProperties(Schema& schema) {
  PropertyRule rule;
  if (const JsonValue* patterns = schema.Find("patternProperties")) {
    if (!patterns->is_object()) return Wrong(schema, "patternProperties", "is not an object");
    for (const auto& [pattern, child] : patterns->members) {
      TLM_ASSIGN_OR_RETURN(const ByteRegex regex,
                           ReadPattern(schema, "patternProperties", pattern));
      TLM_ASSIGN_OR_RETURN(const Formula formula,
                           ReadChild(schema, child, "/patternProperties/" + pattern));
      rule.patterns.emplace_back(regex, formula);
    }
  }
  if (const JsonValue* properties = schema.Find("properties")) {
    if (!properties->is_object()) return Wrong(schema, "properties", "is not an object");
    for (const auto& [name, child] : properties->members) {
      TLM_ASSIGN_OR_RETURN(Formula formula, ReadChild(schema, child, "/properties/" + name));
      const std::string text = EncodeText(name, TextForm::kJson);
      for (const auto& [regex, also] : rule.patterns) {
        TLM_RETURN_IF_ERROR(budget_.Spend(10, schema.place.pointer + "/patternProperties"));
        if (Matches(regexes_, regex, text)) formula = formulas_.And(formula, also);
      }
      rule.named.emplace_back(name, formula);
      rule.by_name.emplace(name, formula);
    }
  }
  if (const JsonValue* others = schema.Find("additionalProperties")) {
    TLM_ASSIGN_OR_RETURN(rule.others, ReadChild(schema, *others, "/additionalProperties"));
  }
  if (rule.named.empty() && rule.patterns.empty() && rule.others == kTrue) return absl::OkStatus();
  schema.all.push_back(
      formulas_.Of({.kind = Atom::Kind::kProperties,
                    .properties = std::make_shared<const PropertyRule>(std::move(rule))}));
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadObjects(Schema& schema) {
  if (const JsonValue* required = schema.Find("required")) {
    if (!required->is_array()) return Wrong(schema, "required", "is not an array");
    for (const JsonValue& name : required->items) {
      if (!name.is_string()) {
        return Wrong(schema, "required", "has an element that is not a string");
      }
      schema.all.push_back(formulas_.OfRequired(name.text));
    }
  }
  TLM_ASSIGN_OR_RETURN(const auto bounds, Bounds(schema, "minProperties", "maxProperties"));
  if (bounds) {
    schema.all.push_back(
        formulas_.Of({.kind = Atom::Kind::kCount, .min = bounds->first, .max = bounds->second}));
  }
  if (const JsonValue* names = schema.Find("propertyNames");
      names != nullptr && index_.draft() != SchemaDraft::kDraft4) {
    TLM_ASSIGN_OR_RETURN(const Formula formula, ReadChild(schema, *names, "/propertyNames"));
    schema.all.push_back(formulas_.Of({.kind = Atom::Kind::kNames, .schema = formula}));
  }
  for (const std::string_view keyword : {"dependencies", "dependentRequired", "dependentSchemas"}) {
    TLM_RETURN_IF_ERROR(ReadDependencies(schema, keyword));
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadDependencies(Schema& schema, std::string_view keyword) {
  const JsonValue* dependencies = schema.Find(keyword);
  if (dependencies == nullptr) return absl::OkStatus();
  if ((keyword == "dependencies") != (index_.draft() <= SchemaDraft::kDraft7)) {
    has_other_drafts_ = true;
    if (other_drafts_ == OtherDrafts::kIgnore) return absl::OkStatus();
  }
  if (!dependencies->is_object()) return Wrong(schema, keyword, "is not an object");
  for (const auto& [name, needs] : dependencies->members) {
    Formula then = kTrue;
    if (needs.is_array() && keyword != "dependentSchemas") {
      for (const JsonValue& needed : needs.items) {
        if (!needed.is_string()) {
          return Wrong(schema, keyword, "has an element that is not a string");
        }
        then = formulas_.And(then, formulas_.OfRequired(needed.text));
      }
    } else if (keyword == "dependentRequired") {
      return Wrong(schema, keyword, "has a value that is not an array");
    } else {
      TLM_ASSIGN_OR_RETURN(then, ReadChild(schema, needs, "/" + std::string(keyword) + "/" + name));
    }
    schema.all.push_back(formulas_.Or(formulas_.Not(formulas_.HasProperty(name)), then));
  }
  return absl::OkStatus();
}

absl::Status SchemaReader::ReadUnevaluated(Schema& schema, UnevaluatedKind kind) {
  const std::string_view keyword =
      kind == UnevaluatedKind::kItems ? "unevaluatedItems" : "unevaluatedProperties";
  const JsonValue* rest = schema.Find(keyword);
  if (rest == nullptr || index_.draft() < SchemaDraft::k2019) return absl::OkStatus();
  TLM_ASSIGN_OR_RETURN(const Formula others, ReadChild(schema, *rest, "/" + std::string(keyword)));
  const bool disputed = kind == UnevaluatedKind::kItems && index_.draft() == SchemaDraft::k2019;
  has_other_drafts_ |= disputed;
  const auto read = [this](const Place& place) { return Read(place); };
  const auto read_pattern = [this](const Place& place, std::string_view pattern) {
    return ReadPattern({place, {}}, "patternProperties", pattern);
  };
  const auto formula =
      tlm::ReadUnevaluated(schema.place, kind, others,
                           {.index = index_,
                            .formulas = formulas_,
                            .budget = budget_,
                            .contains_evaluates = !disputed || other_drafts_ == OtherDrafts::kApply,
                            .read = read,
                            .read_pattern = read_pattern});
  if (!formula.ok()) return At(schema, keyword, formula.status());
  schema.all.push_back(*formula);
  return absl::OkStatus();
}

}  // namespace tlm
