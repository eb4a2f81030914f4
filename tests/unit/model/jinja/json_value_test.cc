#include "model/jinja/json_value.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "model/base/json.h"
#include "model/jinja/printing.h"

namespace tlm::jinja {
namespace {

// What Python prints of json.loads(text); otherwise the message.
std::string Loads(std::string_view text) {
  Heap heap;
  const absl::StatusOr<Value> value = ParseJson(&heap, text);
  if (!value.ok()) return std::string(value.status().message());
  return (*ToText(&heap, *value))->bytes;
}

std::string Repeated(std::string_view part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

TEST(JsonValueTest, KeepsTheOrderOfKeys) {
  EXPECT_EQ(Loads(R"({"z": {"b": 1, "a": {}}, "a": [{"y": null, "x": true}, []]})"),
            "{'z': {'b': 1, 'a': {}}, 'a': [{'y': None, 'x': True}, []]}");
  EXPECT_EQ(Loads(" [ ] "), "[]");
}

TEST(JsonValueTest, TakesTheLastOfEqualKeysAtTheFirstOnesPlace) {
  EXPECT_EQ(Loads(R"({"a": 1, "b": 2, "\u0061": {"c": 1, "c": 2}, "c": 3})"),
            "{'a': {'c': 2}, 'b': 2, 'c': 3}");
  EXPECT_EQ(Loads(R"({"": 1, "": [2]})"), "{'': [2]}");
}

TEST(JsonValueTest, ReadsNumbersAsPythonDoes) {
  EXPECT_EQ(Loads("[0, -0, 1, -9223372036854775808, 9223372036854775807]"),
            "[0, 0, 1, -9223372036854775808, 9223372036854775807]");
  EXPECT_EQ(Loads("[1.0, -0.0, 0.1, 1e3, 1E+2, 1e16, 1e22, 1.5e-7, 123456789.123456789]"),
            "[1.0, -0.0, 0.1, 1000.0, 100.0, 1e+16, 1e+22, 1.5e-07, 123456789.12345679]");
  EXPECT_EQ(Loads("9223372036854775808"),
            "integer 9223372036854775808, the limit is 9223372036854775807");
  EXPECT_EQ(Loads("[-9223372036854775809]"), "integer '-9223372036854775809' does not fit 64 bits");
  EXPECT_EQ(Loads("1e999"), "number out of range at line 1, column 5");
}

TEST(JsonValueTest, DecodesTexts) {
  EXPECT_EQ(Loads(R"("\u00fc\ud83d\ude42\"\\\/\n ü🙂")"), "ü🙂\"\\/\n ü🙂");
  EXPECT_EQ(Loads(R"("\ud83d")"), "is not valid JSON at line 1, column 8");
  EXPECT_EQ(Loads("\"\xff\""), "is not valid JSON at line 1, column 2");
}

TEST(JsonValueTest, SaysWhereItIsNotJson) {
  EXPECT_EQ(Loads(""), "is not valid JSON at line 1, column 1");
  EXPECT_EQ(Loads("{\n\"a\": 1,\n}"), "is not valid JSON at line 3, column 1");
  EXPECT_EQ(Loads("{} x"), "is not valid JSON at line 1, column 4");
  EXPECT_EQ(Loads(std::string_view("{}\0", 3)), "is not valid JSON at line 1, column 3");
  EXPECT_EQ(Loads("[NaN]"), "is not valid JSON at line 1, column 2");
}

TEST(JsonValueTest, BoundsDepthAndWork) {
  const auto nested = [](int depth) { return Repeated("[", depth) + Repeated("]", depth); };
  EXPECT_EQ(Loads(nested(kMaxJsonDepth)), nested(kMaxJsonDepth));
  EXPECT_EQ(Loads(nested(kMaxJsonDepth + 1)), "nests deeper than the limit of 64 levels");
  EXPECT_EQ(Loads(Repeated("{\"a\":", 200'000)), "nests deeper than the limit of 64 levels");

  Heap heap(1000);
  const auto value = ParseJson(&heap, "[" + Repeated("1,", 2000) + "1]");
  EXPECT_EQ(value.status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(JsonValueTest, FindsEqualKeysAmongMany) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += "\"" + std::to_string(i % 50'000) + "\":1,";
  Heap heap;
  const auto value = ParseJson(&heap, text + "\"0\":2}");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(LengthOf(*value), 50'000);
}

}  // namespace
}  // namespace tlm::jinja
