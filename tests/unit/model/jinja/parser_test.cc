#include "model/jinja/parser.h"

#include <gtest/gtest.h>

#include <string>

#include "model/jinja/limits.h"
#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

TEST(ParserTest, FindsFaultsOfSyntaxAndTheirLine) {
  for (const char* const source :
       {"\n{% if %}{% endif %}",
        "\n{% if x %}",
        "\n{% endif %}",
        "\n{% for x %}{% endfor %}",
        "\n{% for in xs %}{% endfor %}",
        "\n{% nothing %}",
        "\n{% set %}",
        "\n{% set 1 = 2 %}",
        "\n{% set true = 2 %}",
        "\n{% set x = %}",
        "\n{{ }}",
        "\n{{ 1 2 }}",
        "\n{{ a. }}",
        "\n{{ a[] }}",
        "\n{{ f(a=1, 2) }}",
        "\n{{ a| }}",
        "\n{{ a is }}",
        "\n{{ a is none is none }}",
        "\n{% macro m(a=1, b) %}{% endmacro %}",
        "\n{% macro m(a, a) %}{% endmacro %}",
        "\n{% break %}",
        "\n{% continue %}",
        "\n{% for x in y %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
        "\n{% for x in y %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
        "\n{% for loop in xs %}{% endfor %}",
        "\n{% for x in y %}{% set loop = 1 %}{% endfor %}",
        "\n{% call 1 %}{% endcall %}",
        "\n{% if x %}{% else %}{% else %}{% endif %}",
        "\n{{ [1, }}",
        "\n{{ {1} }}",
        "\n{{ not }}",
        "\n{{ 1 if }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "line 2");
  }
}

TEST(ParserTest, NamesConstructsThatAreNotSupported) {
  ExpectFails("\n{% include 'x' %}", absl::StatusCode::kUnimplemented, "line 2: tag 'include'");
  ExpectFails("{% extends 'x' %}", absl::StatusCode::kUnimplemented, "tag 'extends'");
  ExpectFails("{% block x %}{% endblock %}", absl::StatusCode::kUnimplemented, "tag 'block'");
  ExpectFails("{% import 'x' as y %}", absl::StatusCode::kUnimplemented, "tag 'import'");
  ExpectFails("{% for x in y recursive %}{% endfor %}", absl::StatusCode::kUnimplemented,
              "recursive");
  for (const char* const name : {"self", "cycler", "varargs", "kwargs"}) {
    ExpectFails(std::string("{{ ") + name + " }}", absl::StatusCode::kUnimplemented, name);
  }
  for (const char* const tag : {"with", "print"}) {
    ExpectFails(std::string("{% ") + tag + " %}", absl::StatusCode::kUnimplemented, tag);
  }
  ExpectFails("{% set x | trim %}{% endset %}", absl::StatusCode::kUnimplemented, "a filter");
  for (const char* const op : {"/", "//", "**"}) {
    ExpectFails(std::string("{% if 0 %}{{ 1 ") + op + " 2 }}{% endif %}",
                absl::StatusCode::kUnimplemented, std::string("operator ") + op);
  }
  ExpectFails("{{ f(*a) }}", absl::StatusCode::kUnimplemented, "* and ** in a call");
  ExpectFails("{{ f(**a) }}", absl::StatusCode::kUnimplemented, "* and ** in a call");
  ExpectFails("{{ a[1, 2] }}", absl::StatusCode::kUnimplemented, "comma");
}

TEST(ParserTest, NamesMethodsThatAreNotSupported) {
  ExpectFails("\n{% if 0 %}{{ s.zfill(3) }}{% endif %}", absl::StatusCode::kUnimplemented,
              "line 2: method 'zfill'");
  ExpectFails("{{ loop.cycle(1, 2) }}", absl::StatusCode::kUnimplemented, "loop.cycle");
  // A member of that name is none.
  EXPECT_EQ(*RenderTemplate("{{ {'index': 1}.index }}"), "1");
}

TEST(ParserTest, BoundsTheSource) {
  const std::string at_limit(jinja::kMaxTemplateBytes, 'x');
  EXPECT_TRUE(jinja::ParseTemplate(at_limit).ok());
  ExpectFails(at_limit + "x", absl::StatusCode::kInvalidArgument,
              "262145 bytes, the limit is 262144");
  ExpectFails("\xff", absl::StatusCode::kInvalidArgument, "UTF-8");
}

std::string Repeat(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

TEST(ParserTest, BoundsNesting) {
  constexpr int kMany = 20000;
  for (const std::string& source :
       {"{{ " + Repeat("(", kMany) + "1" + Repeat(")", kMany) + " }}",
        "{{ " + Repeat("[", kMany) + Repeat("]", kMany) + " }}",
        "{{ " + Repeat("{1:", kMany) + "1" + Repeat("}", kMany) + " }}",
        "{{ " + Repeat("not ", kMany) + "1 }}", "{{ " + Repeat("-", kMany) + "1 }}",
        "{{ 1" + Repeat(" + 1", kMany) + " }}", "{{ 1" + Repeat(" and 1", kMany) + " }}",
        "{{ x" + Repeat(".a", kMany) + " }}", "{{ x" + Repeat("[0]", kMany) + " }}",
        "{{ x" + Repeat("|d", kMany) + " }}", "{{ x" + Repeat("()", kMany) + " }}",
        "{{ x is none" + Repeat("|d", kMany) + " }}",
        "{{ 1" + Repeat(" if 1 else 1", kMany) + " }}", Repeat("{% if 1 %}", kMany),
        Repeat("{% for x in y %}", 15000), Repeat("{% macro m() %}", 15000),
        "{% set " + Repeat("(", kMany) + "x" + Repeat(")", kMany) + " = 1 %}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "the limit of 200 levels");
  }
}

TEST(ParserTest, TakesLongButFlatTemplates) {
  for (const std::string& source :
       {"{% if 0 %}" + Repeat("{% elif 0 %}", 5000) + "{% endif %}",
        "{{ [" + Repeat("1,", 20000) + "]|length }}", "{{ 1" + Repeat(" ~ 1", 20000) + " }}",
        Repeat("{{ 1 }}", 20000)}) {
    EXPECT_TRUE(jinja::ParseTemplate(source).ok());
  }
}

}  // namespace
}  // namespace tlm
