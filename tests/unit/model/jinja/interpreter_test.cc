#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(InterpreterTest, ExecutesStatements) {
  ExpectRenders({
      {R"({% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %})", R"(a)"},
      {R"({% for x in xs %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not )"
       R"(loop.last }}{% endfor %})",
       R"(1/3:3,2/3:1,3/3:2)"},
      {R"({% for x in xs %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ )"
       R"(loop.first }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %})",
       R"(032True1;121False32;210False1;)"},
      {R"({% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% )"
       R"(endfor %})",
       R"(a=1;b=[1, 2];k=v;abk)"},
      {R"({% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %})", R"(123)"},
      {R"({% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }} {% else %}none{% )"
       R"(endfor %})",
       R"(31False 22True )"},
      {R"({% set ns = namespace(go=true) %}{% for x in xs if ns.go %}{{ x }}{% set ns.go = )"
       R"(false %}{% endfor %})",
       R"(3)"},
      {R"({% set ns = namespace() %}{% for x in xs if x > 1 %}{% set ns.l = loop %}{% )"
       R"(endfor %}{{ ns.l.last }}{{ ns.l.previtem }})",
       R"(True3)"},
      {R"({% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% )"
       R"(for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %})",
       R"(323)"},
      {R"({% for x in [] %}a{% else %}empty{% endfor %})", R"(empty)"},
      {R"({% set x = 1 %}{% for y in xs %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }})",
       R"(4231)"},
      {R"({% set ns = namespace(x=1) %}{% for y in xs %}{% set ns.x = ns.x + y %}{% endfor )"
       R"(%}{{ ns.x }}{{ ns.zz is defined }}{{ ns }})",
       R"(7False<Namespace {'x': 7}>)"},
      {R"({% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c + d2 }})", R"(1x7)"},
      {R"({% set x %}<{{ s }}>{% endset %}{{ x|upper }})", R"(<HELLO>)"},
      {R"({% macro m(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ )"
       R"(m(1, c=2) }}{{ m(b=3) }}{{ m(1, 2, 3)|length }})",
       R"([1B1][1B2][3]5)"},
      {R"({% macro fact(k) %}{% if k > 1 %}{{ k * (fact(k - 1)|int) }}{% else %}1{% endif )"
       R"(%}{% endmacro %}{{ fact(10) }})",
       R"(3628800)"},
      {R"({% macro list(xs) %}{% for x in xs %}{{ caller(x) }};{% endfor %}{% endmacro %}{% )"
       R"(call(y) list(xs) %}<{{ y }}>{% endcall %})",
       R"(<3>;<1>;<2>;)"},
      {R"({% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }})", R"(False)"},
      {R"({% filter trim|upper %} a{{ s }} {% endfilter %})", R"(AHELLO)"},
      {R"({% if t %}{% set inner = 1 %}{% endif %}{{ inner }})", R"(1)"},
      {R"({% generation %}{% set q = 1 %}x{{ q }}{% endgeneration %}{{ q is defined }})",
       R"(x1False)"},
      {R"({% for x in range(3) %}{% for y in 'ab' %}{{ loop.index }}{% endfor %}{{ )"
       R"(loop.index }}{% endfor %})",
       R"(121122123)"},
      {R"({{ range(3)|list }} {{ range(1, 7, 2)|list }} {{ range(3, 0, -1)|list }} {{ )"
       R"(dict(a=1, b=s) }} {{ dict(d, a=2).a }})",
       R"([0, 1, 2] [1, 3, 5] [3, 2, 1] {'a': 1, 'b': 'Hello'} 2)"},
      {R"({% for m in messages %}{{ m.role }}:{{ m['content'] }};{% endfor %}{{ )"
       R"(messages|length }}{{ add_generation_prompt }}{{ tools }}{{ documents is none }})",
       R"(user:hi;assistant:yo;2TrueNoneTrue)"},
  });
}

TEST(InterpreterTest, KeepsScopesApart) {
  // What a loop sets ends with its round; what an if sets does not.
  ExpectRenders({
      {R"({% for i in [1, 2] %}{% if loop.first %}{% set v = 'set' %}{% endif %}{{ v }},{% )"
       R"(endfor %}{{ v }})",
       R"(set,,)"},
      {R"({% set v = 0 %}{% macro m() %}{{ v }}{% set v = 5 %}{{ v }}{% endmacro %}{% set v )"
       R"(= 1 %}{{ m() }}{{ v }})",
       R"(151)"},
      {R"({% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% )"
       R"(endfor %})",
       R"(False)"},
  });
}

TEST(InterpreterTest, GivesTheTemplatesOwnWordsForWhatItRaises) {
  const auto text = RenderTemplate(
      "{% for x in xs %}\n{{ raise_exception('Only <b>two</b>: ' ~ x) }}{% endfor %}");
  EXPECT_EQ(text.status(), absl::InvalidArgumentError("Only <b>two</b>: 3"));
}

TEST(InterpreterTest, SaysSoWhenATemplateRaisesNothing) {
  ExpectFails("{{ raise_exception('') }}", absl::StatusCode::kInvalidArgument, "without words");
}

TEST(InterpreterTest, RefusesWhatJinjaRefuses) {
  for (const char* const source :
       {R"({% set x.a = 1 %})", R"({% set d.a = 1 %})", R"({% set ns = namespace(_x=1) %})",
        R"({% set ns = namespace() %}{% set ns._x = 1 %})", R"({% set a, b = [1] %})",
        R"({% set a, b = [1, 2, 3] %})", R"({% for a, b in xs %}{% endfor %})",
        R"({% for x in n %}{% endfor %})", R"({% macro m(a) %}{% endmacro %}{{ m(1, 2) }})",
        R"({% macro m(a) %}{% endmacro %}{{ m(b=1) }})",
        R"({% macro m(a) %}{% endmacro %}{{ m(1, a=1) }})", R"({{ range() }})",
        R"({{ range(1, 2, 0) }})", R"({{ raise_exception() }})", R"({{ loop.index.a }})"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace tlm
