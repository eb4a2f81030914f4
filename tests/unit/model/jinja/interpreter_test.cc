#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(InterpreterTest, ExecutesStatements) {
  ExpectRenders({
      {"{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "a"},
      {"{% for x in xs %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% "
       "endfor %}",
       "1/3:3,2/3:1,3/3:2"},
      {"{% for x in xs %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first "
       "}}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
       "032True1;121False32;210False1;"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
       "a=1;b=[1, 2];k=v;abk"},
      {"{% for (a, (b, c)) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{{ loop.last }} {% else %}none{% endfor "
       "%}",
       "31False 22True "},
      {"{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in xs "
       "%}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}",
       "323"},
      {"{% for x in [] %}a{% else %}empty{% endfor %}", "empty"},
      {"{% for x in xs %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
       "aTruebTrueaTrue"},
      {"{% set x = 1 %}{% for y in xs %}{% set x = x + y %}{{ x }}{% endfor %}{{ x }}", "4231"},
      {"{% set ns = namespace(x=1) %}{% for y in xs %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x "
       "}}{{ ns.zz is defined }}{{ ns }}",
       "7False<Namespace {'x': 7}>"},
      {"{% set a, b = 1, 'x' %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c + d2 }}", "1x7"},
      {"{% set x %}<{{ s }}>{% endset %}{{ x|upper }}{% set y | trim | length %}  ab {% endset "
       "%}{{ y }}",
       "<HELLO>2"},
      {"{% macro m(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c=2) "
       "}}{{ m(b=3) }}{{ m(1, 2, 3)|length }}",
       "[1B1][1B2][3]5"},
      {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}", "(1,){'x': 2}"},
      {"{% macro fact(k) %}{% if k > 1 %}{{ k * (fact(k - 1)|int) }}{% else %}1{% endif %}{% "
       "endmacro %}{{ fact(10) }}",
       "3628800"},
      {"{% macro list(xs) %}{% for x in xs %}{{ caller(x) }};{% endfor %}{% endmacro %}{% call(y) "
       "list(xs) %}<{{ y }}>{% endcall %}",
       "<3>;<1>;<2>;"},
      {"{% filter upper|trim %} {{ s }} b {% endfilter %}", "HELLO B"},
      {"{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "17False"},
      {"{% print s, n %}", "Hello7"},
      {"{% if t %}{% set inner = 1 %}{% endif %}{{ inner }}", "1"},
      {"{% generation %}{% set q = 1 %}x{{ q }}{% endgeneration %}{{ q is defined }}", "x1False"},
      {"{% for x in range(3) %}{% for y in 'ab' %}{{ loop.index }}{% endfor %}{{ loop.index }}{% "
       "endfor %}",
       "121122123"},
      {"{{ range(3)|list }} {{ range(1, 7, 2)|list }} {{ range(3, 0, -1)|list }} {{ range(3) }} {{ "
       "dict(a=1, **{'b': 2}) }} {{ dict([('x', 1)]) }}",
       "[0, 1, 2] [1, 3, 5] [3, 2, 1] range(0, 3) {'a': 1, 'b': 2} {'x': 1}"},
      {"{% for m in messages %}{{ m.role }}:{{ m['content'] }};{% endfor %}{{ messages|length }}{{ "
       "add_generation_prompt }}{{ tools }}{{ documents is none }}",
       "user:hi;assistant:yo;2TrueNoneTrue"},
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
       {"{% set x.a = 1 %}", "{% set d.a = 1 %}", "{% set ns = namespace(_x=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set a, b = [1] %}",
        "{% set a, b = [1, 2, 3] %}", "{% for a, b in xs %}{% endfor %}",
        "{% for x in n %}{% endfor %}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
        "{% macro m(a) %}{% endmacro %}{{ m(b=1) }}",
        "{% macro m(a) %}{% endmacro %}{{ m(1, a=1) }}", "{{ range() }}", "{{ range(1, 2, 0) }}",
        "{{ dict(1) }}", "{{ dict([(1, 2, 3)]) }}", "{{ raise_exception() }}",
        "{{ loop.index.a }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument);
  }
}

TEST(InterpreterTest, KeepsScopesApart) {
  ExpectRenders({
      // What a loop sets ends with its round; what an if sets does not.
      {"{% for i in [1, 2] %}{% if loop.first %}{% set v = 'set' %}{% endif %}{{ v }},{% endfor "
       "%}{{ v }}",
       "set,,"},
      {"{% set v = 0 %}{% macro m() %}{{ v }}{% set v = 5 %}{{ v }}{% endmacro %}{% set v = 1 %}{{ "
       "m() }}{{ v }}",
       "151"},
      {"{% macro m() %}{{ loop is defined }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
       "False"},
  });
}

}  // namespace
}  // namespace tlm
