// Templates that try to take the server's stack, memory or time.
#include "model/jinja/limits.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

TEST(LimitsTest, BoundMacrosThatCallThemselves) {
  ExpectFails("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", kExhausted, "limit of 64 calls");
  ExpectFails(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      kExhausted, "limit of 64 calls");
  ExpectFails("{% macro m(x=m()) %}{% endmacro %}{{ m() }}", kExhausted, "limit of 64 calls");
}

TEST(LimitsTest, LetMacrosNestToTheLimit) {
  ExpectRenders(
      {{"{% macro m(k) %}{% if k > 1 %}{{ m(k - 1) }}{% else %}end{% endif %}{% endmacro %}"
        "{{ m(64) }}",
        "end"}});
}

TEST(LimitsTest, BoundEvaluationsWithinEvaluations) {
  // Fifteen levels of statements and expressions in each of up to 64 calls.
  std::string source = "{% macro m() %}";
  for (int i = 0; i < 12; ++i) source += "{% if 1 %}";
  source += "{{ ((((((((m() ~ '') ~ '') ~ '') ~ '') ~ '') ~ '') ~ '') ~ '') }}";
  for (int i = 0; i < 12; ++i) source += "{% endif %}";
  ExpectFails(source + "{% endmacro %}{{ m() }}", kExhausted, "limit of 600 levels");
}

TEST(LimitsTest, BoundSteps) {
  ExpectFails("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
              kExhausted, "limit of 2000000 steps");
  ExpectFails("{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
              kExhausted);
  // Much work a step: comparing, searching and cutting long texts.
  const std::string big = "{% set a = 'ab' * 1000000 %}{% set b = 'ab' * 1000000 %}";
  const std::string often = "{% for i in range(100000) %}";
  for (const char* const work :
       {"{% set x = a == b %}", "{% set x = 'c' in a %}", "{% set x = a.replace('c', 'd') %}",
        "{% set x = a|length %}{% set y = a[1:] %}", "{% set x = a|upper %}",
        "{% set x = a.startswith(b) %}", "{% set x = a ~ '' %}"}) {
    ExpectFails(big + often + work + "{% endfor %}", kExhausted, "limit of 2000000 steps");
  }
}

TEST(LimitsTest, BoundSearchesInTextThatRepeatsItself) {
  const std::string texts = "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 + 'b' %}";
  EXPECT_EQ(
      *RenderTemplate(texts + "{{ b in a }}{{ a.split(b)|length }}{{ a|replace(b, '')|length }}"),
      "False14000000");
}

TEST(LimitsTest, BoundRanges) {
  ExpectFails("{{ range(1000000000) }}", kExhausted, "limit is 100000 items");
  ExpectFails("{{ range(-9223372036854775807, 9223372036854775807) }}", kExhausted, "100000 items");
  ExpectRenders({{"{{ range(100000)|length }}", "100000"},
                 {"{{ range(9223372036854775800, 9223372036854775807, 4)|list }}",
                  "[9223372036854775800, 9223372036854775804]"}});
}

TEST(LimitsTest, BoundMemoryBeforeItIsTaken) {
  for (const char* const source :
       {"{{ 'a' * 1000000000 }}", "{{ 'ab' * 9223372036854775807 }}",
        "{{ 'a'|indent(1000000000) }}", "{{ [1]|tojson(indent=1000000000) }}",
        "{% set a = 'a' * 1000000 %}{{ a|replace('a', a) }}",
        "{% set a = 'a' * 1000000 %}{{ a.join(a) }}", "{% set a = 'a' * 100000 %}{{ a|join(a) }}",
        "{% set a = 'a' * 10000000 %}{{ a|list }}",
        "{% set ns = namespace(a='ab') %}{% for i in range(100) %}{% "
        "set ns.a = ns.a + ns.a %}{% endfor %}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(100) %}{% set "
        "ns.a = ns.a + ns.a %}{% endfor %}",
        "{% set ns = namespace(a='ab') %}{% for i in range(100) %}{% "
        "set ns.a = ns.a ~ ns.a %}{% endfor %}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(90) %}{% set "
        "ns.a = [ns.a, ns.a] %}{% endfor %}"
        "{{ ns.a }}",
        "{% set ns = namespace(a=[1]) %}{% for i in range(90) %}{% set "
        "ns.a = [ns.a, ns.a] %}{% endfor %}"
        "{{ ns.a|tojson|length }}"}) {
    ExpectFails(source, kExhausted);
  }
}

TEST(LimitsTest, BoundNestedValues) {
  const std::string loop = "{% for i in range(1000) %}";
  ExpectFails("{% set ns = namespace(a=[]) %}" + loop + "{% set ns.a = [ns.a] %}{% endfor %}",
              kExhausted, "limit of 100 levels");
  ExpectFails("{% set ns = namespace(a={}) %}" + loop + "{% set ns.a = {'a': ns.a} %}{% endfor %}",
              kExhausted, "limit of 100 levels");
}

TEST(LimitsTest, BoundComparisonOfSharedParts) {
  // Two trees of 2^90 leaves, in 90 lists each.
  ExpectFails(
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(90) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
      kExhausted, "steps");
}

TEST(LimitsTest, SurviveValuesThatHoldThemselves) {
  ExpectFails("{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns }}", kExhausted);
  ExpectRenders(
      {{"{% macro m() %}x{% endmacro %}{% set ns = namespace(m=m) %}{% set ns.ns = ns %}{{ "
        "ns.ns.m() }}",
        "x"}});
}

TEST(LimitsTest, BoundOutput) {
  ExpectFails("{% set a = 'a' * 1000000 %}{% for i in range(9) %}{{ a }}{% endfor %}", kExhausted,
              "limit of 8388608 bytes");
  // What blocks collect counts along with the text around them.
  ExpectFails("{% set a = 'a' * 5000000 %}{{ a }}{% set b %}{{ a }}{% endset %}", kExhausted,
              "limit of 8388608 bytes");
  const auto text = RenderTemplate("{{ 'a' * 8388608 }}");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->size(), jinja::kMaxOutputBytes);
}

TEST(LimitsTest, LeaveRoomForLongConversations) {
  std::vector<ChatMessage> messages;
  for (int i = 0; i < 5000; ++i) {
    messages.push_back({"user", std::string(200, 'u')});
    messages.push_back({"assistant", std::string(200, 'a')});
  }
  const auto chat = ChatTemplate::Parse(
      "{% set ns = namespace(n=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' %}"
      "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{% for m in messages %}"
      "{{ '<|' + m.role + '|>' + m.content.strip() + '\n' }}{% endfor %}{{ ns.n }}",
      nlohmann::json::object());
  ASSERT_TRUE(chat.ok()) << chat.status();
  const auto text = (*chat)->Render({.messages = messages, .add_generation_prompt = false},
                                    nlohmann::json::object());
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(text->ends_with("5000"));
}

}  // namespace
}  // namespace tlm
