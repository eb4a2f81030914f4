#include "model/constraint/json_schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace tlm {
namespace {

using Json = nlohmann::json;

absl::StatusOr<std::unique_ptr<Recognizer>> Compile(std::string_view schema,
                                                    const JsonOptions& options = {}) {
  Budget budget(absl::Seconds(10), nullptr);
  return CompileJsonSchema(schema, options, {}, budget);
}

bool Takes(Recognizer& recognizer, std::string_view text) {
  Recognizer::State state = recognizer.start();
  for (const char byte : text) {
    if (state == Recognizer::kDead) return false;
    state = recognizer.Next(state, static_cast<uint8_t>(byte));
  }
  return state != Recognizer::kDead && recognizer.Accepts(state);
}

bool Allows(std::string_view schema, std::string_view text, const JsonOptions& options = {}) {
  const auto recognizer = Compile(schema, options);
  EXPECT_TRUE(recognizer.ok()) << recognizer.status() << " " << schema;
  return recognizer.ok() && Takes(**recognizer, text);
}

// What the standard says, value by value.
class Definition {
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

class RandomSchemaTest : public ::testing::Test {
 protected:
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
  void AddKeyword(Json& schema, int depth) {
    switch (Draw(depth > 0 ? 27 : 10)) {
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
        if (Draw(2) == 0) {
          schema["propertyNames"] = Schema(0);
        } else {
          schema["dependentRequired"][Name()] = Json::array({Name()});
        }
        break;
    }
  }

  std::mt19937 random_{42};
};

TEST_F(RandomSchemaTest, TakesWhatTheDefinitionSays) {
  int valid = 0;
  for (int i = 0; i < 3000; ++i) {
    const Json schema = Schema(2);
    const auto recognizer = Compile(schema.dump(), {.any_property_order = true});
    ASSERT_TRUE(recognizer.ok() ||
                recognizer.status().message() == "no value can be as the schema says")
        << recognizer.status() << " " << schema;
    for (int j = 0; j < 20; ++j) {
      const Json value = Value(2);
      const bool is = Definition::Is(schema, value);
      EXPECT_EQ(recognizer.ok() && Takes(**recognizer, value.dump()), is) << schema << "\n"
                                                                          << value;
      valid += is ? 1 : 0;
    }
  }
  EXPECT_GT(valid, 10'000);
}

// Where a walk ends because nothing may follow, what was written is a value.
TEST_F(RandomSchemaTest, WalksEndInWhatTheDefinitionSays) {
  int whole = 0, stuck = 0;
  for (int i = 0; i < 2000; ++i) {
    const Json schema = Schema(2);
    const auto recognizer = Compile(schema.dump(), {.compact = true});
    if (!recognizer.ok()) continue;
    std::string text;
    Recognizer::State state = (*recognizer)->start();
    for (int steps = 0; steps < 300 && !(*recognizer)->Accepts(state); ++steps) {
      const ByteSet bytes = (*recognizer)->NextBytes(state);
      std::vector<uint8_t> may;
      for (int byte = 0; byte < 256; ++byte) {
        const auto one = static_cast<uint8_t>(byte);
        if (!bytes.Has(one)) continue;
        ASSERT_NE((*recognizer)->Next(state, one), Recognizer::kDead) << schema << "\n" << text;
        // Mostly what ends something.
        const bool ends = byte == '"' || byte == ']' || byte == '}';
        may.insert(may.end(), ends ? 30 : byte < 128 ? 4 : 1, one);
      }
      if (may.empty()) break;
      const uint8_t byte = may[static_cast<size_t>(Draw(static_cast<int>(may.size())))];
      text += static_cast<char>(byte);
      state = (*recognizer)->Next(state, byte);
    }
    if (!(*recognizer)->Accepts(state)) {
      stuck += (*recognizer)->NextBytes(state).empty() ? 1 : 0;
      continue;
    }
    ++whole;
    EXPECT_TRUE(Definition::Is(schema, Json::parse(text))) << schema << "\n" << text;
  }
  EXPECT_GT(whole, 1200);
  EXPECT_LT(stuck, 30);
}

TEST(JsonSchemaTest, BlanksAreThoseOfPrinters) {
  constexpr std::string_view kSchema = R"({"properties": {"a": {"items": {"type": "integer"}}}})";
  const Json value = {{"a", {1, 2}}, {"b", Json::object()}};
  for (const int indent : {0, 1, 2, 4, 8}) {
    EXPECT_TRUE(Allows(kSchema, value.dump(indent))) << indent;
    EXPECT_FALSE(Allows(kSchema, value.dump(indent), {.compact = true})) << indent;
  }
  EXPECT_TRUE(Allows(kSchema, value.dump(), {.compact = true}));
  EXPECT_TRUE(Allows(kSchema, R"({"a": [1, 2], "b": {}})"));
  EXPECT_TRUE(Allows(kSchema, R"({ "a": [ 1, 2 ] })"));
  EXPECT_TRUE(Allows(kSchema, "{\n\t\"a\": []\n}"));
  for (const std::string_view text :
       {" {}", "{} ", "{ }", "{\n}", "{\"a\" : []}", "{\"a\":  []}", "{\"a\":\n[]}",
        "{\n\n\"a\": []}", "{\"a\": [1 , 2]}", "{\n         \"a\": []}", "{\r\n\"a\": []}"}) {
    EXPECT_FALSE(Allows(kSchema, text)) << text;
  }
}

TEST(JsonSchemaTest, PropertiesComeInTheOrderOfTheSchema) {
  constexpr std::string_view kSchema =
      R"({"properties": {"b": true, "a": true}, "required": ["c"]})";
  EXPECT_TRUE(Allows(kSchema, R"({"b": 1, "a": 2, "c": 3, "x": 4})"));
  EXPECT_TRUE(Allows(kSchema, R"({"a": 2, "c": 3})"));
  for (const std::string_view text :
       {R"({"a": 2, "b": 1, "c": 3})", R"({"x": 4, "b": 1, "c": 3})"}) {
    EXPECT_FALSE(Allows(kSchema, text)) << text;
    EXPECT_TRUE(Allows(kSchema, text, {.any_property_order = true})) << text;
  }
  for (const std::string_view text :
       {R"({"b": 1, "b": 1, "c": 3})", R"({"c": 3, "x": 4, "x": 4})"}) {
    EXPECT_FALSE(Allows(kSchema, text)) << text;
    EXPECT_FALSE(Allows(kSchema, text, {.any_property_order = true})) << text;
  }
}

TEST(JsonSchemaTest, References) {
  constexpr std::string_view kTree =
      R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object",
    "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"$ref": "#number"}}},
    "x": {"$anchor": "number", "type": "number"}}})";
  EXPECT_TRUE(Allows(kTree, R"({"next": {"next": {}, "value": 1}})"));
  EXPECT_FALSE(Allows(kTree, R"({"next": {"next": [], "value": 1}})"));
  EXPECT_FALSE(Allows(kTree, R"({"next": {"value": "1"}})"));
  constexpr std::string_view kInner = R"({"$id": "http://a.example/b/c.json",
    "items": {"$ref": "../d.json#/$defs/e"},
    "$defs": {"d": {"$id": "/d.json", "$defs": {"e": {"type": "null"}}}}})";
  EXPECT_TRUE(Allows(kInner, "[null]"));
  EXPECT_FALSE(Allows(kInner, "[1]"));
  constexpr std::string_view kRelative = R"({"$id": "a.example/b/c.json",
    "items": {"$ref": "#/$defs/d"}, "$defs": {"d": {"type": "null"}}})";
  EXPECT_TRUE(Allows(kRelative, "[null]"));
  const struct {
    std::string_view schema, message;
  } kWrong[] = {
      {R"({"$ref": "http://a.example/x.json"})", "nothing is fetched"},
      {R"({"$ref": "#/$defs/x"})", "leads to no place"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"not": {"$ref": "#"}}}})", "itself"},
  };
  for (const auto& wrong : kWrong) {
    const auto status = Compile(wrong.schema).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.schema;
    EXPECT_NE(status.message().find(std::string(wrong.message)), absl::string_view::npos) << status;
  }
}

TEST(JsonSchemaTest, Unevaluated) {
  constexpr std::string_view kSchema = R"({"type": "object", "properties": {"a": true},
    "anyOf": [{"properties": {"b": {"const": 1}}, "required": ["b"]},
              {"properties": {"c": true}, "required": ["c"]}],
    "unevaluatedProperties": false})";
  EXPECT_TRUE(Allows(kSchema, R"({"a": 0, "b": 1})"));
  EXPECT_TRUE(Allows(kSchema, R"({"a": 0, "b": 1, "c": 2})"));
  EXPECT_TRUE(Allows(kSchema, R"({"c": 2})"));
  EXPECT_FALSE(Allows(kSchema, R"({"b": 2, "c": 2})"));
  EXPECT_FALSE(Allows(kSchema, R"({"b": 1, "d": 2})"));
}

TEST(JsonSchemaTest, OldDrafts) {
  constexpr std::string_view kFour = R"({"$schema": "http://json-schema.org/draft-04/schema#",
    "minimum": 1, "exclusiveMinimum": true, "if": false, "else": false})";
  EXPECT_TRUE(Allows(kFour, "2"));
  EXPECT_FALSE(Allows(kFour, "1"));
  constexpr std::string_view kSeven = R"({"$schema": "http://json-schema.org/draft-07/schema#",
    "items": [{"type": "null"}], "additionalItems": {"$ref": "#/definitions/n", "type": "null"},
    "dependencies": {"a": ["b"]}, "definitions": {"n": {"type": "number"}}})";
  EXPECT_TRUE(Allows(kSeven, "[null, 1]"));
  EXPECT_FALSE(Allows(kSeven, "[null, null]"));
  EXPECT_FALSE(Allows(kSeven, R"({"a": 1})"));
}

TEST(JsonSchemaTest, WrongSchemasAreNamed) {
  const struct {
    std::string_view schema, message;
  } kWrong[] = {
      {"", "not JSON"},
      {"[]", "neither an object nor a boolean"},
      {R"({"type": "int"})", "type at the root: names no type of JSON: 'int'"},
      {R"({"properties": {"a": {"items": 3}}})", "at /properties/a/items"},
      {R"({"multipleOf": 0})", "multipleOf"},
      {R"({"minLength": -1})", "minLength at the root: is -1"},
      {R"({"pattern": "("})", "pattern at"},
      {R"({"required": "a"})", "required at the root: is not an array"},
      {R"({"anyOf": []})", "anyOf at the root: is empty"},
      {R"({"$schema": "http://json-schema.org/draft-03/schema#"})", "drafts 4, 6, 7"},
      {R"({"type": "object", "required": ["a"], "properties": {"a": false}})", "no value"},
      {R"({"required": ["a"], "type": "object", "properties": {"a": {"$ref": "#"}}})", "no value"},
  };
  for (const auto& wrong : kWrong) {
    const auto status = Compile(wrong.schema).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.schema;
    EXPECT_NE(status.message().find(std::string(wrong.message)), absl::string_view::npos) << status;
  }
  EXPECT_FALSE(Compile(std::string(200, '[') + std::string(200, ']')).ok());
}

TEST(JsonSchemaTest, WhatUnevaluatedKeywordsDependOnIsLimited) {
  // Each of 12 schemas refers 12 times to the next.
  std::string defs;
  for (int i = 0; i < 12; ++i) {
    const std::string next = R"({"$ref": "#/$defs/d)" + std::to_string(i + 1) + R"("})";
    std::string all = next;
    for (int copy = 1; copy < 12; ++copy) all += ", " + next;
    defs += R"("d)" + std::to_string(i) + R"(": {"allOf": [)" + all + "]}, ";
  }
  const std::string deep = R"({"unevaluatedProperties": false, "$ref": "#/$defs/d0", "$defs": {)" +
                           defs + R"("d12": {"properties": {"a": true}}}})";
  // A millisecond passes at each look, so the budget ends after so many steps on any machine.
  class : public Clock {
    absl::Time Now() override { return now_ += absl::Milliseconds(1); }
    absl::Time now_ = absl::UnixEpoch();
  } clock;
  Budget budget(absl::Milliseconds(250), nullptr, &clock);
  const auto status = CompileJsonSchema(deep, {}, {}, budget).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;

  std::string any;
  for (int i = 0; i < 7; ++i) {
    any += std::string(i == 0 ? "" : ", ") + R"({"properties": {"p)" + std::to_string(i) +
           R"(": true}})";
  }
  const auto many = Compile(R"({"unevaluatedProperties": false, "anyOf": [)" + any + "]}").status();
  EXPECT_EQ(many.code(), absl::StatusCode::kResourceExhausted) << many;
  EXPECT_EQ(
      std::string(many.message()),
      "unevaluatedProperties at the root: depends on more than 64 combinations of subschemas");
}

// What a condition on an earlier property asks of a later one is known when that begins.
TEST(JsonSchemaTest, ConditionsAreDecidedByTheLastPropertyTheyName) {
  const auto recognizer = Compile(R"({"type": "object", "required": ["a", "b"], "properties": {
    "a": {"enum": ["x", "y"]}, "b": {"type": "string"}},
    "if": {"properties": {"a": {"const": "x"}}},
    "then": {"properties": {"b": {"pattern": "^[0-9]{3}$"}}},
    "else": {"properties": {"b": {"pattern": "^[a-z]{3}$"}}}})");
  ASSERT_TRUE(recognizer.ok());
  Recognizer::State state = (*recognizer)->start();
  for (const char byte : std::string_view(R"({"a": "x", "b": ")")) {
    state = (*recognizer)->Next(state, static_cast<uint8_t>(byte));
  }
  EXPECT_NE((*recognizer)->Next(state, '1'), Recognizer::kDead);
  EXPECT_EQ((*recognizer)->Next(state, 'a'), Recognizer::kDead);
}

// A value of 0.01's multiples that some validators take for none is not written.
// Some validators know hosts such as xn--b as a hostname: they are neither one nor none.
TEST(JsonSchemaTest, DisputedFormats) {
  const struct {
    std::string_view schema, text;
    bool allowed;
  } kCases[] = {
      {R"({"format": "hostname"})", R"("a.b")", true},
      {R"({"format": "hostname"})", R"("xn--b")", false},
      {R"({"not": {"format": "hostname"}})", R"("xn--b")", false},
      {R"({"not": {"format": "hostname"}})", R"("a b")", true},
      {R"({"oneOf": [{"format": "hostname"}, {"type": "string", "maxLength": 9}]})", R"("a b")",
       true},
      {R"({"oneOf": [{"format": "hostname"}, {"type": "string", "maxLength": 9}]})", R"("xn--b")",
       false},
      {R"({"if": {"format": "time"}, "then": {"const": "x"}})", R"("23:59:60Z")", false},
      {R"({"not": {"properties": {"a": {"format": "email"}}}, "required": ["a"], "type": "object"})",
       R"({"a": "b@xn--c.de"})", false},
      {R"({"not": {"properties": {"a": {"format": "email"}}}, "required": ["a"], "type": "object"})",
       R"({"a": "b"})", true},
      {R"({"not": {"format": "ipv4"}})", R"("1.2.3.999")", true},
      {R"({"propertyNames": {"not": {"format": "hostname"}}, "type": "object"})", R"({"xn--b": 1})",
       false},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Allows(test.schema, test.text), test.allowed) << test.schema << ": " << test.text;
  }
}

TEST(JsonSchemaTest, DisputedMultiples) {
  EXPECT_TRUE(Allows(R"({"multipleOf": 0.01})", "19.98"));
  EXPECT_FALSE(Allows(R"({"multipleOf": 0.01})", "4.35"));
  const auto recognizer = Compile(R"({"multipleOf": 0.01})");
  ASSERT_TRUE(recognizer.ok());
  Recognizer::State state = (*recognizer)->start();
  for (const char byte : std::string_view("4.3")) {
    state = (*recognizer)->Next(state, static_cast<uint8_t>(byte));
  }
  EXPECT_EQ((*recognizer)->Next(state, '5'), Recognizer::kDead);
  EXPECT_NE((*recognizer)->Next(state, '6'), Recognizer::kDead);
}

}  // namespace
}  // namespace tlm
