#include "model/chat/xml_arguments.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "model/base/errors.h"
#include "model/constraint/bytes/recognizer.h"
#include "model/text/utf8.h"
#include "tests/support/recognizer_walk.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/model/constraint/json/schema_definition.h"

namespace tlm {
namespace {

using Names = std::vector<std::string>;

absl::StatusOr<std::unique_ptr<Recognizer>> Compile(const Json& schema,
                                                    const JsonOptions& options = {}) {
  Budget budget(absl::Seconds(10), nullptr);
  TLM_ASSIGN_OR_RETURN(const RecognizerFactory make,
                       kXmlArguments.compile(schema.dump(), options, {}, budget));
  return make();
}

// As a template writes the arguments of a call.
std::string ToXml(const Json& arguments, const Names& texts) {
  std::string xml;
  for (const auto& [name, value] : arguments.items()) {
    const bool is_text = std::ranges::find(texts, name) != texts.end();
    xml += "<parameter=" + name + ">\n" + (is_text ? value.get<std::string>() : value.dump()) +
           "\n</parameter>\n";
  }
  return xml + "</function>";
}

// The JSON that results; what was wrong if the text is none of arguments.
std::string ToJson(std::string_view xml, const Names& texts) {
  XmlArgumentsReader reader(std::make_shared<const Names>(texts));
  std::string json;
  for (size_t i = 0; i < xml.size(); ++i) {
    if (reader.complete()) return "complete";
    if (!reader.Append(xml[i], json)) return fmt::format("refused at {}", i);
  }
  return reader.complete() ? json : "incomplete";
}

// ---- The reader

TEST(XmlArgumentsTest, TextParametersAreThoseOfStrings) {
  EXPECT_EQ(TextParameters(R"({"properties": {
      "s": {"type": "string", "enum": ["a"]}, "e": {"enum": ["a", "b"]}, "c": {"const": "a"},
      "n": {"type": ["string", "null"]}, "m": {"enum": ["a", 1]}, "i": {"type": "integer"},
      "x": {}, "y": true, "z": {"enum": []}, "k": {"const": null}}})"),
            (Names{"c", "e", "s"}));
  EXPECT_EQ(TextParameters(R"({"$defs": {"color": {"enum": ["red"]}, "size": {"type": "integer"},
      "hue": {"$ref": "#/$defs/color"}, "a/b": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
      "properties": {"c": {"$ref": "#/$defs/color"}, "h": {"$ref": "#/$defs/hue"},
      "i": {"$ref": "#/$defs/size"}, "l": {"$ref": "#/$defs/loop"}, "n": {"$ref": "#/$defs/none"},
      "s": {"$ref": "#/$defs/a/b"}, "x": {"$ref": "https://example.com/x"}}})"),
            (Names{"c", "h"}));
  for (const char* const none : {"true", "[]", "{", "{}", R"({"properties": 1})"}) {
    EXPECT_TRUE(TextParameters(none).empty()) << none;
  }
}

TEST(XmlArgumentsTest, ReadsValues) {
  const Names texts = {"path", "pattern", "text"};
  EXPECT_EQ(ToJson("</function>", texts), "{}");
  EXPECT_EQ(ToJson("<parameter=path>\na.txt\n</parameter>\n<parameter=lines>\n[1, 2]\n"
                   "</parameter>\n</function>",
                   texts),
            R"({"path":"a.txt","lines":[1, 2]})");
  EXPECT_EQ(ToJson("<parameter=text>\n\n</parameter>\n</function>", texts), R"({"text":""})");
  EXPECT_EQ(ToJson("<parameter=text>\n\n\n\n</parameter>\n</function>", texts),
            R"({"text":"\n\n"})");
  EXPECT_EQ(ToJson("<parameter=text>\n\"a\\b\"\n</parameter\n\n</parameter>\n</function>", texts),
            R"({"text":"\"a\\b\"\n</parameter\n"})");
  // Only whole names are those of texts.
  for (const std::string name : {"pat", "paths", "", "x", "patterns", "texT"}) {
    EXPECT_EQ(ToJson("<parameter=" + name + ">\n\"]\\\"\"\n</parameter>\n</function>", texts),
              "{\"" + name + R"(":"]\""})");
  }
  EXPECT_EQ(ToJson("<parameter=a\"b>\n{\n\"c\": [\n1\n]\n}\n</parameter>\n</function>", texts),
            "{\"a\\\"b\":{\n\"c\": [\n1\n]\n}}");
}

TEST(XmlArgumentsTest, RefusesOtherTexts) {
  const std::string begin = "<parameter=n>\n";
  for (const std::string text :
       {"{}", "</functions>", "<parameter:", " </function>", "<parameter=n>1", "</function>\n"}) {
    EXPECT_TRUE(ToJson(text, {}).starts_with("refused") || ToJson(text, {}) == "complete") << text;
  }
  // What stands around a value of JSON, and what would end the object.
  for (const std::string value : {"1,", "1:", "1}", "[]]", " 1", "1 ", "1\n2", "1\r\n", "\t"}) {
    EXPECT_TRUE(ToJson(begin + value + "\n</parameter>\n</function>", {}).starts_with("refused"))
        << value;
  }
  EXPECT_TRUE(ToJson(begin + "1\n</parameter></function>", {}).starts_with("refused"));
}

TEST(XmlArgumentsTest, ReadsEveryCharacterOfATextBack) {
  const auto recognizer = Compile({{"type", "object"},
                                   {"properties", {{"a", {{"type", "string"}, {"maxLength", 1}}}}},
                                   {"required", {"a"}}});
  ASSERT_TRUE(recognizer.ok()) << recognizer.status();
  for (char32_t character = 0; character < 0x10ffff; character += character < 0x3000   ? 1
                                                                  : character < 0xd7ff ? 97
                                                                                       : 1009) {
    if (character >= 0xd800 && character < 0xe000) continue;
    std::string text;
    AppendUtf8(character, &text);
    const std::string xml = ToXml({{"a", text}}, {"a"});
    ASSERT_TRUE(Takes(**recognizer, xml)) << static_cast<uint32_t>(character);
    ASSERT_EQ(Json::parse(ToJson(xml, {"a"})), Json({{"a", text}}));
    ASSERT_FALSE(Takes(**recognizer, ToXml({{"a", text + text}}, {"a"})));
  }
}

// ---- The language

TEST(XmlArgumentsTest, ASchemaWithoutObjectsOrWithNamesThatCannotBeIsRefused) {
  const std::map<std::string, std::string> wrong = {
      {R"({"type": "array"})", "the schema is unsatisfiable: no object is valid"},
      {R"({"properties": {"a>b": {}}})", "'a>b'"},
      {R"({"required": ["a>b"]})", "'a>b'"},
      {R"({"type": 1})", "type at the root"},
      {"[", "not valid JSON"}};
  for (const auto& [schema, message] : wrong) {
    Budget budget(absl::Seconds(10), nullptr);
    EXPECT_THAT(kXmlArguments.compile(schema, {}, {}, budget), IsInvalidArgument(message))
        << schema;
  }
}

TEST(XmlArgumentsTest, ATextEndsOnlyWhereItMay) {
  const Json schema = Json::parse(R"({"type": "object", "required": ["a"],
      "properties": {"a": {"enum": ["x", "x\ny", "x\n</p"]}}})");
  const auto recognizer = Compile(schema);
  ASSERT_TRUE(recognizer.ok());
  for (const char* const text : {"x", "x\ny", "x\n</p"}) {
    EXPECT_TRUE(Takes(**recognizer, ToXml({{"a", text}}, {"a"}))) << text;
  }
  const auto next = [&](std::string_view text) {
    const Recognizer::State state = StateAfter(**recognizer, text);
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) {
      const auto one = static_cast<uint8_t>(byte);
      if ((*recognizer)->NextBytes(state).Has(one)) bytes += static_cast<char>(byte);
    }
    return bytes;
  };
  EXPECT_EQ(next("<"), "p");
  EXPECT_EQ(next("<parameter=a>\n"), "x");
  EXPECT_EQ(next("<parameter=a>\nx"), "\n");
  EXPECT_EQ(next("<parameter=a>\nx\n"), "<y");
  EXPECT_EQ(next("<parameter=a>\nx\n</p"), "\na");
  EXPECT_EQ(next("<parameter=a>\nx\n</pa"), "r");
  EXPECT_EQ(next("<parameter=a>\nx\n</p\n</parameter>\n<"), "/p");
}

TEST(XmlArgumentsTest, AnEnumOfTheDefinitionsStandsAsText) {
  const auto recognizer = Compile(Json::parse(R"({"type": "object",
      "properties": {"c": {"$ref": "#/$defs/color"}}, "$defs": {"color": {"enum": ["red"]}}})"));
  ASSERT_TRUE(recognizer.ok());
  EXPECT_TRUE(Takes(**recognizer, ToXml({{"c", "red"}}, {"c"})));
  EXPECT_FALSE(Takes(**recognizer, ToXml({{"c", "blue"}}, {"c"})));
  EXPECT_FALSE(Takes(**recognizer, ToXml({{"c", "red"}}, {})));
}

TEST(XmlArgumentsTest, BlanksAreThoseOfTheOptions) {
  const Json schema = {{"type", "object"}};
  const std::string xml = "<parameter=a>\n[1, 2]\n</parameter>\n</function>";
  const auto printed = Compile(schema), compact = Compile(schema, {.compact = true});
  ASSERT_TRUE(printed.ok() && compact.ok());
  EXPECT_TRUE(Takes(**printed, xml));
  EXPECT_FALSE(Takes(**compact, xml));
  EXPECT_TRUE(Takes(**compact, ToXml({{"a", {1, 2}}}, {})));
  EXPECT_TRUE(Takes(**printed, "<parameter=a>\n{\n  \"b\": 1\n}\n</parameter>\n</function>"));
}

class RandomArgumentsTest : public ::testing::Test, protected RandomSchemas {
 protected:
  // Of an object whose properties are strings more often than not.
  Json ObjectSchema() {
    Json schema = Schema(2);
    if (!schema.is_object()) schema = Json::object();
    schema["type"] = "object";
    for (int i = Draw(4); i > 0; --i) {
      Json& property = schema["properties"][Name()];
      if (!property.is_object()) property = Json::object();
      if (Draw(3) != 0) property["type"] = "string";
    }
    if (Draw(3) == 0) schema["additionalProperties"] = false;
    return schema;
  }
  Json Arguments(const Names& texts) {
    static const std::vector<std::string> some = {"",      "a",   "ab", "a\nb",          "\n",
                                                  "\"a\\", "ä世", "</", "\n</parameter", "\x01"};
    Json arguments = Json::object();
    for (int i = Draw(4); i > 0; --i) {
      const std::string name = Name();
      const bool is_text = std::ranges::find(texts, name) != texts.end();
      arguments[name] = is_text ? Json(some[static_cast<size_t>(Draw(10))]) : Value(1);
    }
    return arguments;
  }
};

TEST_F(RandomArgumentsTest, XmlOfADocumentIsTakenIfTheSchemaAllowsIt) {
  int valid = 0, invalid = 0;
  for (int i = 0; i < 1500; ++i) {
    const Json schema = ObjectSchema();
    const Names texts = TextParameters(schema.dump());
    const auto recognizer = Compile(schema, {.any_property_order = true});
    for (int j = 0; j < 20; ++j) {
      const Json arguments = Arguments(texts);
      const std::string xml = ToXml(arguments, texts);
      ASSERT_EQ(Json::parse(ToJson(xml, texts)), arguments) << xml;
      const bool is = SchemaDefinition::Is(schema, arguments);
      EXPECT_EQ(recognizer.ok() && Takes(**recognizer, xml), is) << schema << "\n" << xml;
      (is ? valid : invalid) += 1;
    }
  }
  EXPECT_GT(valid, 5000);
  EXPECT_GT(invalid, 5000);
}

// What a recognizer says of the bytes that may follow a state agrees.
void CheckBytes(Recognizer& recognizer, Recognizer::State state) {
  const Recognizer::Part part = recognizer.PartOf(state);
  for (int i = 0; i < 256 && part.dfa != nullptr; ++i) {
    const auto byte = static_cast<uint8_t>(i);
    const RegexDfa::State inside = part.dfa->Next(part.state, byte);
    const Recognizer::State next = recognizer.Next(state, byte);
    if (part.dfa->Accepts(inside)) continue;
    ASSERT_EQ(inside == RegexDfa::kDead, next == Recognizer::kDead) << i;
    if (next == Recognizer::kDead) continue;
    ASSERT_EQ(recognizer.PartOf(next).dfa, part.dfa);
    ASSERT_EQ(recognizer.PartOf(next).state, inside);
  }
}

TEST_F(RandomArgumentsTest, WalksEndInDocumentsThatTheSchemaAllows) {
  int whole = 0, stuck = 0;
  for (int i = 0; i < 1500; ++i) {
    const Json schema = ObjectSchema();
    const auto made = Compile(schema, {.compact = true});
    if (!made.ok()) continue;
    Recognizer& recognizer = **made;
    std::string text;
    Recognizer::State state = recognizer.start();
    for (int steps = 0; steps < 400 && !recognizer.Accepts(state); ++steps) {
      ASSERT_NO_FATAL_FAILURE(CheckBytes(recognizer, state)) << schema << "\n" << text;
      const ByteSet bytes = recognizer.NextBytes(state);
      std::vector<uint8_t> may;
      for (int byte = 0; byte < 256; ++byte) {
        const auto one = static_cast<uint8_t>(byte);
        if (!bytes.Has(one)) continue;
        // Mostly what ends something.
        const bool ends =
            std::string_view("\n</>").find(static_cast<char>(byte)) != std::string::npos;
        may.insert(may.end(), ends || byte == '"' ? 60 : byte < 128 ? 2 : 1, one);
      }
      if (may.empty()) break;
      const uint8_t byte = may[static_cast<size_t>(Draw(static_cast<int>(may.size())))];
      text += static_cast<char>(byte);
      state = recognizer.Next(state, byte);
    }
    if (!recognizer.Accepts(state)) {
      stuck += recognizer.NextBytes(state).empty() ? 1 : 0;
      continue;
    }
    ++whole;
    const std::string json = ToJson(text, TextParameters(schema.dump()));
    ASSERT_TRUE(Json::accept(json)) << text << "\n" << json;
    EXPECT_TRUE(SchemaDefinition::Is(schema, Json::parse(json))) << schema << "\n" << text;
  }
  EXPECT_GT(whole, 800);
  EXPECT_LT(stuck, 20);
}

}  // namespace
}  // namespace tlm
