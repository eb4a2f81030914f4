#include "model/constraint/json/json_schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/recognizer_walk.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/constraint/json/schema_definition.h"

namespace tlm {
namespace {

absl::StatusOr<std::unique_ptr<Recognizer>> Compile(std::string_view schema,
                                                    const JsonOptions& options = {}) {
  Budget budget(absl::Seconds(10), nullptr);
  return CompileJsonSchema(schema, options, {}, budget);
}

bool Allows(std::string_view schema, std::string_view text, const JsonOptions& options = {}) {
  const auto recognizer = Compile(schema, options);
  EXPECT_TRUE(recognizer.ok()) << recognizer.status() << " " << schema;
  return recognizer.ok() && Takes(**recognizer, text);
}

class RandomSchemaTest : public ::testing::Test, protected RandomSchemas {
 protected:
  // Compares what the recognizer takes with the definition, for values of every type. How many are
  // valid.
  int CompareWithDefinition(const Json& schema) {
    const auto recognizer = Compile(schema.dump(), {.any_property_order = true});
    // These a constraint of a bounded size cannot express.
    if (recognizer.status().code() == absl::StatusCode::kResourceExhausted) return 0;
    EXPECT_TRUE(recognizer.ok() ||
                recognizer.status().message() == "the schema is unsatisfiable: no value is valid")
        << recognizer.status() << " " << schema;
    std::vector<Json> values = {nullptr, Draw(2) == 0,  Draw(7),
                                "ab",    Json::array(), Json::object({{Name(), Scalar()}})};
    for (int j = 0; j < 14; ++j) values.push_back(Value(2));
    int valid = 0;
    for (const Json& value : values) {
      const bool is = SchemaDefinition::Is(schema, value);
      EXPECT_EQ(recognizer.ok() && Takes(**recognizer, value.dump()), is) << schema << "\n"
                                                                          << value;
      valid += is ? 1 : 0;
    }
    return valid;
  }
};

TEST_F(RandomSchemaTest, TakesWhatTheDefinitionSays) {
  int valid = 0;
  for (int i = 0; i < 3000; ++i) valid += CompareWithDefinition(Schema(2));
  EXPECT_GT(valid, 10'000);
}

// With any spelling, a text of any writer is taken exactly where the value is valid: names, texts
// that patterns and lengths bound, items that must differ, numbers in ranges.
TEST_F(RandomSchemaTest, AnySpellingOfAValue) {
  OtherWriter writer;
  int valid = 0, other_texts = 0;
  for (int i = 0; i < 700; ++i) {
    const Json schema = Schema(2);
    const auto recognizer =
        Compile(schema.dump(), {.any_property_order = true, .any_escapes = true});
    if (!recognizer.ok()) continue;
    for (int j = 0; j < 12; ++j) {
      const Json value = Value(2);
      const std::string text = writer.Write(value);
      const bool is = SchemaDefinition::Is(schema, value);
      EXPECT_EQ(Takes(**recognizer, text), is) << schema << "\n" << text;
      valid += is ? 1 : 0;
      other_texts += is && text != value.dump() ? 1 : 0;
    }
  }
  EXPECT_GT(valid, 2'000);
  EXPECT_GT(other_texts, 300);
}

// A keyword about one type is true of values of all others, where they are denied, too.
TEST_F(RandomSchemaTest, EveryKeywordWithinEveryOperator) {
  for (int keyword = 0; keyword < kKeywords; ++keyword) {
    int valid = 0;
    for (int i = 0; i < 40; ++i) {
      Json inner = Json::object();
      AddKeyword(inner, 1, keyword);
      if (Draw(3) == 0) AddKeyword(inner, 1);
      const Json schemas[] = {
          {{"not", inner}},
          {{"oneOf", {inner, Schema(1)}}},
          {{"anyOf", {inner, Schema(0)}}},
          {{"if", inner}, {"then", Schema(1)}, {"else", Schema(1)}},
          {{"dependentSchemas", {{Name(), inner}}}, {"unevaluatedItems", false}},
          {{"allOf", {{{"not", {{"not", inner}}}}}}}};
      for (const Json& schema : schemas) valid += CompareWithDefinition(schema);
    }
    EXPECT_GT(valid, 300) << keyword;
  }
}

// Where a walk ends because nothing may follow, what was written is a value.
TEST_F(RandomSchemaTest, WalksEndInWhatTheDefinitionSays) {
  int whole = 0, stuck = 0;
  for (int i = 0; i < 2000; ++i) {
    const Json schema = Schema(2);
    const auto recognizer = Compile(schema.dump(), {.compact = true, .any_escapes = i % 3 == 0});
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
    EXPECT_TRUE(SchemaDefinition::Is(schema, Json::parse(text))) << schema << "\n" << text;
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

TEST(JsonSchemaTest, Spellings) {
  const struct {
    std::string_view schema, text;
    bool allowed;
  } kCases[] = {
      {R"({"const": "é"})", R"("\u00e9")", true},
      {R"({"const": "é"})", R"("\u00E9")", true},
      {R"({"const": "é"})", R"("\u00e8")", false},
      {R"({"const": "a/b"})", R"("\u0061\/b")", true},
      {R"({"const": "\n"})", R"("\u000a")", true},
      {R"({"const": "😀"})", R"("\ud83d\uDE00")", true},
      {R"({"const": "😀"})", R"("\ud83d")", false},
      {R"({"type": "string"})", R"("\ude00")", false},
      {R"({"type": "string"})", R"("\ud83d\u0061")", false},
      {R"({"type": "string"})", R"("\a")", false},
      {R"({"maxLength": 2, "minLength": 2})", R"("\ud83d\ude00\u0062")", true},
      {R"({"maxLength": 1})", R"("\ud83d\ude00\u0062")", false},
      {R"({"pattern": "^[à-ü]+$"})", R"("\u00e9é")", true},
      {R"({"pattern": "^[à-ü]+$"})", R"("\u0065")", false},
      {R"({"format": "date"})", R"("2024\u002d02-29")", true},
      {R"({"properties": {"é": {"type": "null"}}})", R"({"\u00e9": 1})", false},
      {R"({"properties": {"é": {"type": "null"}}})", R"({"\u00e9": null})", true},
      {R"({"type": "object"})", R"({"é": 1, "\u00e9": 2})", false},
      {R"({"uniqueItems": true})", R"(["é", "\u00e9"])", false},
      {R"({"uniqueItems": true})", R"([4e1, 40])", false},
      {R"({"type": "integer"})", "1.0", true},
      {R"({"type": "integer"})", "4e1", true},
      {R"({"type": "integer"})", "1.5e1", true},
      {R"({"type": "integer"})", "1.5", false},
      {R"({"type": "integer"})", "1.5e0", false},
      {R"({"type": "integer"})", "1e-1", false},
      {R"({"type": "integer", "minimum": 40, "maximum": 50})", "4e1", true},
      {R"({"type": "integer", "minimum": 41, "maximum": 50})", "4e1", false},
      {R"({"type": "integer", "minimum": -400})", "-4.0E+02", true},
      {R"({"multipleOf": 5})", "4e1", true},
      {R"({"multipleOf": 7})", "4e1", false},
      {R"({"enum": [40]})", "4.0e1", true},
      {R"({"not": {"type": "integer"}})", "4e1", false},
      {R"({"not": {"type": "integer"}})", "1.0", false},
      {R"({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"})", "1.0",
       false},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Allows(test.schema, test.text, {.any_escapes = true}), test.allowed)
        << test.schema << ": " << test.text;
    EXPECT_FALSE(Allows(test.schema, test.text)) << test.schema << ": " << test.text;
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
  for (const auto& [schema, message] : kWrong) {
    EXPECT_THAT(Compile(schema), IsInvalidArgument(std::string(message))) << schema;
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

TEST(JsonSchemaTest, DependenciesConcernObjectsOnly) {
  constexpr std::string_view kSeven = R"("$schema": "http://json-schema.org/draft-07/schema#", )";
  const struct {
    std::string schema;
    std::vector<std::string_view> allowed, forbidden;
  } kCases[] = {
      {R"({"not": {"dependentSchemas": {"c": {"type": "integer"}}}})",
       {R"({"c": 1})"},
       {"true", "[]", "\"a\"", "{}", "1"}},
      {R"({"oneOf": [{"type": "string"}, {"dependentSchemas": {"c": {"required": ["d"],
           "type": "object"}}}]})",
       {"true", "[]", "{}"},
       {"\"a\"", R"({"c": 1})"}},
      {"{" + std::string(kSeven) +
           R"("not": {"dependencies": {"c": {"type": "object", "required": ["d"]}}}})",
       {R"({"c": 1})"},
       {"true", "[]", "\"a\"", R"({"c": 1, "d": 1})"}},
      {R"({"dependentSchemas": {"c": {"minLength": 2}}})", {"\"a\"", R"({"c": 1})"}, {}},
      {R"({"dependentSchemas": {"c": false}})", {"true", "[]", "\"a\"", "{}"}, {R"({"c": 1})"}},
      {R"({"dependentSchemas": {"c": {"prefixItems": [true]}}, "unevaluatedItems": false})",
       {"[]", "1"},
       {"[1]"}},
  };
  for (const auto& test : kCases) {
    for (const std::string_view text : test.allowed) {
      EXPECT_TRUE(Allows(test.schema, text)) << test.schema << ": " << text;
    }
    for (const std::string_view text : test.forbidden) {
      EXPECT_FALSE(Allows(test.schema, text)) << test.schema << ": " << text;
    }
  }
}

// Validators disagree on keywords about dependencies that the draft does not define: what one of
// them forbids is not written.
TEST(JsonSchemaTest, DependenciesOfOtherDrafts) {
  constexpr std::string_view kNew = R"({"dependencies": {"a": ["b"]}})";
  EXPECT_TRUE(Allows(kNew, R"({"b": 1, "a": 1})"));
  EXPECT_FALSE(Allows(kNew, R"({"a": 1})"));
  EXPECT_EQ(std::string(Compile(R"({"not": {"dependencies": {"a": ["b"]}}})").status().message()),
            "the schema is unsatisfiable: no value is valid");
  // In 2019-09 `contains` evaluates no items, but to some.
  constexpr std::string_view kContains =
      R"("$schema": "https://json-schema.org/draft/2019-09/schema",
    "contains": {"type": "null"}, "unevaluatedItems": false)";
  for (const std::string_view text : {"[null]", "[null, 1]"}) {
    EXPECT_FALSE(Allows(fmt::format("{{{}}}", kContains), text)) << text;
  }
  EXPECT_FALSE(Allows(fmt::format(R"({{"not": {{{}}}}})", kContains), "[null]"));
  EXPECT_TRUE(Allows(fmt::format(R"({{"not": {{{}}}}})", kContains), "[null, 1]"));
  constexpr std::string_view kOld = R"({"$schema": "http://json-schema.org/draft-07/schema#",
    "oneOf": [{"type": "object"}, {"dependentRequired": {"a": ["b"]}, "type": "object"},
              {"$ref": "#/definitions/n"}], "definitions": {"n": {"type": "null"}}})";
  EXPECT_TRUE(Allows(kOld, "null"));
  EXPECT_FALSE(Allows(kOld, R"({"a": 1})"));
}

TEST(JsonSchemaTest, WrongSchemasAreNamed) {
  const struct {
    std::string_view schema, message;
  } kWrong[] = {
      {"", "not valid JSON"},
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
  for (const auto& [schema, message] : kWrong) {
    EXPECT_THAT(Compile(schema), IsInvalidArgument(std::string(message))) << schema;
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
  EXPECT_THAT(CompileJsonSchema(deep, {}, {}, budget),
              IsResourceExhausted("takes longer than the limit"));

  std::string any;
  for (int i = 0; i < 7; ++i) {
    any += std::string(i == 0 ? "" : ", ") + R"({"properties": {"p)" + std::to_string(i) +
           R"(": true}})";
  }
  EXPECT_THAT(Compile(R"({"unevaluatedProperties": false, "anyOf": [)" + any + "]}"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       "unevaluatedProperties at the root: depends on more than 64 combinations of "
                       "subschemas"));
}

// What a condition on an earlier property asks of a later one is known when that begins.
TEST(JsonSchemaTest, ConditionsAreDecidedByTheLastPropertyTheyName) {
  const auto recognizer = Compile(R"({"type": "object", "required": ["a", "b"], "properties": {
    "a": {"enum": ["x", "y"]}, "b": {"type": "string"}},
    "if": {"properties": {"a": {"const": "x"}}},
    "then": {"properties": {"b": {"pattern": "^[0-9]{3}$"}}},
    "else": {"properties": {"b": {"pattern": "^[a-z]{3}$"}}}})");
  ASSERT_TRUE(recognizer.ok());
  const Recognizer::State state = StateAfter(**recognizer, R"({"a": "x", "b": ")");
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
      {R"({"not": {"format": "date"}})", R"("a")", true},
      {R"({"$schema": "http://json-schema.org/draft-06/schema#", "anyOf": [
          {"not": {"format": "date"}}, {"type": "null"}]})",
       R"("a")", false},
      {R"({"$schema": "http://json-schema.org/draft-06/schema#", "format": "date"})",
       R"("2024-02-29")", true},
      {R"({"$schema": "http://json-schema.org/draft-07/schema#", "not": {"format": "date"}})",
       R"("a")", true},
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
  const Recognizer::State state = StateAfter(**recognizer, "4.3");
  EXPECT_EQ((*recognizer)->Next(state, '5'), Recognizer::kDead);
  EXPECT_NE((*recognizer)->Next(state, '6'), Recognizer::kDead);
}

}  // namespace
}  // namespace tlm
