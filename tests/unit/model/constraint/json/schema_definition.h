// What JSON Schema says, value by value; schemas and values to ask about, and a writer of values.
#ifndef TLM_TESTS_UNIT_MODEL_CONSTRAINT_JSON_SCHEMA_DEFINITION_H_
#define TLM_TESTS_UNIT_MODEL_CONSTRAINT_JSON_SCHEMA_DEFINITION_H_

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tlm {

using Json = nlohmann::json;

// What the standard says, value by value.
class SchemaDefinition {
 public:
  static bool Is(const Json& schema, const Json& value) {
    if (schema.is_boolean()) return schema.get<bool>();
    for (const auto& [keyword, says] : schema.items()) {
      if (!Says(schema, keyword, says, value)) return false;
    }
    return true;
  }

 private:
  static bool Says(const Json& schema, const std::string& keyword, const Json& says,
                   const Json& value) {
    const auto is = [&](const Json& part) { return Is(part, value); };
    if (keyword == "type") return IsType(says, value);
    if (keyword == "const") return value == says;
    if (keyword == "enum") return std::ranges::find(says, value) != says.end();
    if (keyword == "allOf") return std::ranges::all_of(says, is);
    if (keyword == "anyOf") return std::ranges::any_of(says, is);
    if (keyword == "oneOf") return std::ranges::count_if(says, is) == 1;
    if (keyword == "not") return !is(says);
    if (keyword == "if") {
      const char* branch = is(says) ? "then" : "else";
      return !schema.contains(branch) || is(schema[branch]);
    }
    if (keyword == "unevaluatedProperties" || keyword == "unevaluatedItems") {
      Json others = schema;
      others.erase(keyword);
      return SaysOfUnevaluated(keyword == "unevaluatedItems", says, Evaluated(others, value),
                               value);
    }
    if (value.is_number()) {
      const auto number = value.get<double>();
      if (keyword == "minimum") return number >= says.get<double>();
      if (keyword == "exclusiveMaximum") return number < says.get<double>();
      if (keyword == "multipleOf") return std::fmod(number, says.get<double>()) == 0;
    }
    if (value.is_string()) {
      const auto text = value.get<std::string>();
      const auto length =
          std::ranges::count_if(text, [](char byte) { return (byte & 0xc0) != 0x80; });
      if (keyword == "minLength") return length >= says.get<int>();
      if (keyword == "maxLength") return length <= says.get<int>();
      if (keyword == "pattern") return text.find('a') != std::string::npos;
    }
    if (value.is_array()) return SaysOfArray(schema, keyword, says, value);
    if (value.is_object()) return SaysOfObject(schema, keyword, says, value);
    return true;
  }

  // Names of the properties, or indices of the items, that a schema evaluates in a value: all
  // keywords count that are beside one another, and the subschemas that the value satisfies.
  static std::set<std::string> Evaluated(const Json& schema, const Json& value) {
    std::set<std::string> evaluated;
    if (schema.is_boolean() || !Is(schema, value)) return evaluated;
    const auto add = [&](const Json& part) {
      if (Is(part, value)) evaluated.merge(Evaluated(part, value));
    };
    for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
      for (const Json& part : schema.value(keyword, Json::array())) add(part);
    }
    if (schema.contains("if")) {
      add(schema["if"]);
      const char* branch = Is(schema["if"], value) ? "then" : "else";
      if (schema.contains(branch)) add(schema[branch]);
    }
    if (value.is_array()) {
      const size_t first = schema.value("prefixItems", Json::array()).size();
      const bool all = schema.contains("items") || schema.contains("unevaluatedItems");
      for (size_t i = 0; i < value.size(); ++i) {
        const bool matches = schema.contains("contains") && Is(schema["contains"], value[i]);
        if (i < first || all || matches) evaluated.insert(std::to_string(i));
      }
    }
    if (!value.is_object()) return evaluated;
    const Json dependent = schema.value("dependentSchemas", Json::object());
    for (const auto& [name, needs] : dependent.items()) {
      if (value.contains(name)) add(needs);
    }
    for (const auto& [name, member] : value.items()) {
      if (schema.value("properties", Json::object()).contains(name) ||
          (schema.contains("patternProperties") && name.find('b') != name.npos) ||
          schema.contains("additionalProperties") || schema.contains("unevaluatedProperties")) {
        evaluated.insert(name);
      }
    }
    return evaluated;
  }

  static bool SaysOfUnevaluated(bool items, const Json& says,
                                const std::set<std::string>& evaluated, const Json& value) {
    if (items ? !value.is_array() : !value.is_object()) return true;
    size_t index = 0;
    for (const auto& [name, member] : value.items()) {
      const std::string key = items ? std::to_string(index++) : name;
      if (!evaluated.contains(key) && !Is(says, member)) return false;
    }
    return true;
  }

  static bool IsType(const Json& type, const Json& value) {
    if (type == "integer") return value.is_number_integer();
    if (type == "number") return value.is_number();
    return type == value.type_name();
  }

  static bool SaysOfArray(const Json& schema, const std::string& keyword, const Json& says,
                          const Json& value) {
    if (keyword == "minItems") return value.size() >= says;
    if (keyword == "maxItems") return value.size() <= says;
    if (keyword == "uniqueItems") {
      for (size_t i = 0; i < value.size(); ++i) {
        if (says && std::find(value.begin(), value.begin() + static_cast<long>(i), value[i]) !=
                        value.begin() + static_cast<long>(i)) {
          return false;
        }
      }
    }
    if (keyword == "prefixItems") {
      for (size_t i = 0; i < std::min(says.size(), value.size()); ++i) {
        if (!Is(says[i], value[i])) return false;
      }
    }
    if (keyword == "items") {
      for (size_t i = schema.value("prefixItems", Json::array()).size(); i < value.size(); ++i) {
        if (!Is(says, value[i])) return false;
      }
    }
    if (keyword == "contains") {
      const auto count = static_cast<size_t>(
          std::ranges::count_if(value, [&](const Json& item) { return Is(says, item); }));
      return count >= schema.value("minContains", size_t{1}) &&
             count <= schema.value("maxContains", size_t{99});
    }
    return true;
  }

  static bool SaysOfObject(const Json& schema, const std::string& keyword, const Json& says,
                           const Json& value) {
    if (keyword == "minProperties") return value.size() >= says;
    if (keyword == "maxProperties") return value.size() <= says;
    if (keyword == "required") {
      return std::ranges::all_of(
          says, [&](const Json& name) { return value.contains(name.get<std::string>()); });
    }
    if (keyword == "dependentRequired") {
      for (const auto& [name, needs] : says.items()) {
        if (value.contains(name) && !SaysOfObject(schema, "required", needs, value)) return false;
      }
    }
    if (keyword == "dependentSchemas") {
      for (const auto& [name, needs] : says.items()) {
        if (value.contains(name) && !Is(needs, value)) return false;
      }
    }
    for (const auto& [name, member] : value.items()) {
      const bool named = schema.value("properties", Json::object()).contains(name);
      const bool matches = schema.contains("patternProperties") && name.find('b') != name.npos;
      if (keyword == "propertyNames" && !Is(says, name)) return false;
      if (keyword == "properties" && named && !Is(says[name], member)) return false;
      if (keyword == "patternProperties" && matches && !Is(says["b"], member)) return false;
      if (keyword == "additionalProperties" && !named && !matches && !Is(says, member))
        return false;
    }
    return true;
  }
};

// Random schemas and values.
class RandomSchemas {
 public:
  int Draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  // A small world, so that schemas and values meet.
  Json Scalar() {
    const std::vector<Json> all = {nullptr, true, false, 0, 1, 2, 3, 6, 1.5, "", "a", "b", "ab"};
    return all[static_cast<size_t>(Draw(static_cast<int>(all.size())))];
  }
  std::string Name() { return std::array{"a", "b", "ab", "c"}[static_cast<size_t>(Draw(4))]; }
  Json Value(int depth) {
    Json value = Scalar();
    if (depth == 0 || Draw(3) == 0) return value;
    if (Draw(2) == 0) {
      value = Json::array();
      for (int i = Draw(4); i > 0; --i) value.push_back(Value(depth - 1));
    } else {
      value = Json::object();
      for (int i = Draw(4); i > 0; --i) value[Name()] = Value(depth - 1);
    }
    return value;
  }

  Json Schemas(int depth) {
    Json list = Json::array();
    for (int i = 1 + Draw(3); i > 0; --i) list.push_back(Schema(depth));
    return list;
  }
  Json Schema(int depth) {
    Json schema = Json::object();
    if (depth == 0 && Draw(6) == 0) return Draw(2) == 0;
    for (int i = 1 + Draw(3); i > 0; --i) AddKeyword(schema, depth);
    return schema;
  }
  static constexpr int kKeywords = 31;
  void AddKeyword(Json& schema, int depth) {
    AddKeyword(schema, depth, Draw(depth > 0 ? kKeywords : 10));
  }
  void AddKeyword(Json& schema, int depth, int keyword) {
    switch (keyword) {
      case 0:
      case 1:
        schema["type"] = std::array{"null",   "boolean", "number", "integer",
                                    "string", "array",   "object"}[static_cast<size_t>(Draw(7))];
        break;
      case 2:
        schema["const"] = Value(1);
        break;
      case 3:
        schema["enum"] = Json::array({Value(1), Scalar(), Scalar()});
        break;
      case 4:
        schema["minimum"] = Draw(4);
        break;
      case 5:
        schema["exclusiveMaximum"] = Draw(6);
        break;
      case 6:
        schema["multipleOf"] = 1 + Draw(3);
        break;
      case 7:
        schema["minLength"] = Draw(3);
        break;
      case 8:
        schema["maxLength"] = Draw(3);
        break;
      case 9:
        schema["pattern"] = "a";
        break;
      case 10:
        schema["allOf"] = Schemas(depth - 1);
        break;
      case 11:
        schema["anyOf"] = Schemas(depth - 1);
        break;
      case 12:
        schema["oneOf"] = Schemas(depth - 1);
        break;
      case 13:
        schema["not"] = Schema(depth - 1);
        break;
      case 14:
        schema["if"] = Schema(depth - 1);
        schema[Draw(2) == 0 ? "then" : "else"] = Schema(depth - 1);
        break;
      case 15:
        schema["items"] = Schema(depth - 1);
        break;
      case 16:
        schema["prefixItems"] = Schemas(depth - 1);
        break;
      case 17:
        schema["contains"] = Schema(depth - 1);
        if (Draw(2) == 0) schema["minContains"] = Draw(3);
        if (Draw(3) == 0) schema["maxContains"] = Draw(3);
        break;
      case 18:
        schema["minItems"] = Draw(3);
        break;
      case 19:
        schema["maxItems"] = Draw(4);
        break;
      case 20:
        schema["uniqueItems"] = true;
        break;
      case 21:
        for (int i = Draw(3); i >= 0; --i) schema["properties"][Name()] = Schema(depth - 1);
        break;
      case 22:
        schema["required"] = Json::array({Name()});
        break;
      case 23:
        schema["additionalProperties"] = Schema(depth - 1);
        break;
      case 24:
        schema["patternProperties"]["b"] = Schema(depth - 1);
        break;
      case 25:
        schema[Draw(2) == 0 ? "minProperties" : "maxProperties"] = Draw(3);
        break;
      case 26:
        schema["propertyNames"] = Schema(0);
        break;
      case 27:
        schema["dependentRequired"][Name()] = Json::array({Name()});
        break;
      case 28:
        schema["dependentSchemas"][Name()] = Schema(depth - 1);
        break;
      case 29:
        schema["unevaluatedProperties"] = Schema(depth - 1);
        break;
      case 30:
        schema["unevaluatedItems"] = Schema(depth - 1);
        break;
    }
  }

 private:
  std::mt19937 random_{42};
};

// Writes a JSON text as some other program might: escapes that are not needed, integers with a
// fraction of zeros or an exponent.
class OtherWriter : public RandomSchemas {
 public:
  std::string Write(const Json& value) {
    if (value.is_string()) return Quoted(value.get<std::string>());
    if (value.is_number_integer() && value != 0) {
      const std::string text = value.dump();
      switch (Draw(4)) {
        case 0:
          return text + (Draw(2) == 0 ? ".0" : ".000");
        case 1:
          return text + (Draw(2) == 0 ? "e0" : "E+00");
        case 2:
          return text + ".0e-0";
        default:
          return text;
      }
    }
    if (!value.is_structured()) return value.dump();
    std::string text;
    for (const auto& [name, item] : value.items()) {
      if (!text.empty()) text += ", ";
      text += (value.is_object() ? Quoted(name) + ": " : "") + Write(item);
    }
    return value.is_object() ? "{" + text + "}" : "[" + text + "]";
  }

 private:
  std::string Quoted(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      const auto code = static_cast<unsigned>(c);
      quoted += Draw(3) == 0   ? fmt::format("\\u{:04x}", code)
                : Draw(2) == 0 ? fmt::format("\\u{:04X}", code)
                               : std::string(1, c);
    }
    return quoted + "\"";
  }
};

}  // namespace tlm

#endif  // TLM_TESTS_UNIT_MODEL_CONSTRAINT_JSON_SCHEMA_DEFINITION_H_
