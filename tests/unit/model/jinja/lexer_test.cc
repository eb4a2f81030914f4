#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(LexerTest, ControlsWhiteSpaceAsJinja) {
  ExpectRenders({
      {"  {% if t %}\n a\n  {% endif %}\n b\n", " a\n b"},
      {"a  {%- if t -%}  b  {%- endif -%}  c", "abc"},
      {"a {%+ if t +%}\nb{% endif %}\nc", "a \nbc"},
      {"{{ 1 }}\n{{ 2 }}\n", "1\n2"},
      {"{{ 1 -}}  \n  {{- 2 }}", "12"},
      {"a\n\n", "a\n"},
      {"{# c #}\na{#- c -#} b", "ab"},
      {"  {# c #}  x", "  x"},
      {"x {%- if t %}y{% endif %}", "xy"},
      {"a\r\nb\rc", "a\nb\nc"},
      {"a {{- '' }}{{ '' -}} b", "ab"},
      {"\t{% set x = 1 %}\n\t{{ x }}", "\t1"},
      {"{% for x in xs %}\n  {{ x }}\n{% endfor %}\nend", "  3\n  1\n  2\nend"},
  });
}

TEST(LexerTest, LeavesRawTextAsItIs) {
  ExpectRenders({
      {"a{% raw %}{{ x }}{% if %}{# c #}{% endraw %}b", "a{{ x }}{% if %}{# c #}b"},
      {"a {%- raw -%} \n {{ 1 }} {%- endraw -%} \n b", "a{{ 1 }}b"},
      {"{% raw %}\n a\n  {% endraw %}\nb", "\n a\nb"},
      {"  {%raw%}{%+ endraw +%}\nb", "\nb"},
      {"{% raw %}{% raw %}{% endraw %}x{{ 'y' }}", "{% raw %}xy"},
      {"{% raw %}  {% endraw %}", "  "},
      {"{{ '{% raw %}' }}{{ 1 }}", "{% raw %}1"},
  });
  for (const char* const source :
       {"{% raw %}{% endraw", "{% raw %}{% endraw x %}", "{% raw +%}{% endraw %}",
        "{% raw x %}{% endraw %}", "{% endraw %}", "{%raw%}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "line 1");
  }
}

TEST(LexerTest, FindsFaults) {
  for (const char* const source :
       {"{{", "{{ 1", "{{ 1 %}", "{% if", "{# c", "{{ 'a }}", "{{ $ }}", "{{ (1] }}", "{{ 1) }}",
        "{{ '\\x4' }}", "{{ '\\U00110000' }}", "{{ {1: 2 }}", "{{ ! }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "line 1");
  }
}

TEST(LexerTest, BoundsNames) {
  ExpectFails("{{ " + std::string(257, 'a') + " }}", absl::StatusCode::kInvalidArgument,
              "257 bytes, the limit is 256");
  EXPECT_TRUE(RenderTemplate("{{ " + std::string(256, 'a') + " }}").ok());
}

TEST(LexerTest, NamesWhatItDoesNotSupport) {
  ExpectFails("{{ é }}", absl::StatusCode::kUnimplemented, "line 1: a name with the character 'é'");
  ExpectFails("{{ '\\N{DASH}' }}", absl::StatusCode::kUnimplemented, "\\N");
  ExpectFails("{{ '\\101' }}", absl::StatusCode::kUnimplemented, "the escape \\1");
  ExpectFails("{{ '\\é' }}", absl::StatusCode::kUnimplemented, "the escape");
  for (const char* const source : {"{{ 0x1F }}", "{{ 0b1 }}", "{{ 1_000 }}", "{{ 017 }}"}) {
    ExpectFails(source, absl::StatusCode::kUnimplemented, "line 1: the number");
  }
  ExpectFails("{{ '\\ud800' }}", absl::StatusCode::kUnimplemented, "surrogate");
}

}  // namespace
}  // namespace tlm
