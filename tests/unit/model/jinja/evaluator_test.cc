#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(EvaluatorTest, EvaluatesLiterals) {
  ExpectRenders({
      {R"({{ 1 }} {{ 0 }} {{ 1.5 }} {{ 1e3 }} {{ 1E-7 }} {{ 1e16 }} {{ 1e15 }} {{ )"
       R"(123456789.123 }} {{ 0.1 + 0.2 }} {{ 1e300 * 1e10 }})",
       R"(1 0 1.5 1000.0 1e-07 1e+16 1000000000000000.0 123456789.123 0.30000000000000004 )"
       R"(inf)"},
      {R"({{ true }} {{ True }} {{ false }} {{ none }} {{ None }})",
       R"(True True False None None)"},
      {R"({{ 'a' 'b' "c" }})", R"(abc)"},
      {R"({{ '\x41\u00e9\U0001f642\q\'' }})", R"(Aé🙂\q')"},
      {R"({{ [] }} {{ [1, 'a', [none]] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }})",
       R"([] [1, 'a', [None]] () (1,) (1, 2) (1, 2))"},
      {R"({{ {} }} {{ {'a': 1, 'b': {'c': [1.0]}} }})", R"({} {'a': 1, 'b': {'c': [1.0]}})"},
      {R"({{ {'a': 1, 'a': 2, 1: 'x', true: 'y'} }})", R"({'a': 2, 1: 'y'})"},
      {R"({{ ["it's", 'q"', '\n\t\\', 'é\x00\u200b'] }})",
       R"(["it's", 'q"', '\n\t\\', 'é\x00\u200b'])"},
  });
}

TEST(EvaluatorTest, EvaluatesOperatorsAsPython) {
  ExpectRenders({
      {R"({{ 7 % -3 }} {{ -7 % 3 }} {{ 1 + 2 * 3 - 4 }} {{ 1.0 * 3 }} {{ 1 - 0.5 }})",
       R"(-2 2 3 3.0 0.5)"},
      {R"({{ 'a' + 'b' ~ 1 ~ none ~ [1] }})", R"(ab1None[1])"},
      {R"({{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }}| {{ [1] + [2] }} {{ (1,) + (2,) }})",
       R"(ababab xx | [1, 2] (1, 2))"},
      {R"({{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ 1 == 1.0 }} {{ '1' == 1 }} {{ )"
       R"(true == 1 }} {{ [1] == [1] }} {{ [1] == (1,) }} {{ d == {'a': 1} }})",
       R"(True False True True False True True False False)"},
      {R"({{ 'ell' in s }} {{ 1 in xs }} {{ 9 not in xs }} {{ 'a' in d }} {{ 1 in )"
       R"(undefined_name }})",
       R"(True True True True False)"},
      {R"({{ 0 or 'x' }} {{ 0 and 'x' }} {{ not s }} {{ nil or '' or 3 }})", R"(x 0 False 3)"},
      {R"({{ 'y' if t else 'n' }} {{ 'y' if nil }}| {{ 1 if 0 else 2 if 0 else 3 }})", R"(y | 3)"},
      {R"({{ -n }} {{ - -3 }} {{ true + true }} {{ 3 * false }})", R"(-7 3 2 0)"},
      {R"({{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }})",
       R"(9223372036854775807 -9223372036854775808)"},
  });
}

TEST(EvaluatorTest, ReadsMembersItemsAndSlices) {
  ExpectRenders({
      {R"({{ d.a }} {{ d['b'][1] }} {{ d.zz }}| {{ d['zz'] is defined }} {{ users[0].name )"
       R"(}} {{ users.0.name }})",
       R"(1 2 | False Zoe Zoe)"},
      {R"({{ xs[0] }} {{ xs[-1] }} {{ xs[9] is defined }} {{ u[-1] }} {{ u[4] }})",
       R"(3 2 False 🙂 ß)"},
      {R"({{ xs[1:] }} {{ xs[::-1] }} {{ xs[:-1] }} {{ xs[-2:] }} {{ xs[10:] }} {{ xs[::2] )"
       R"(}} {{ (1, 2, 3)[1:] }})",
       R"([1, 2] [2, 1, 3] [3, 1] [1, 2] [] [3, 2] (2, 3))"},
      {R"({{ s[1:3] }} {{ u[4:8] }} {{ s[-3:-1] }} {{ s[nil:2] }} {{ u[20:] }})",
       R"(el ße Ο ll He )"},
      {R"({{ d.items()|list }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('a') }} )"
       R"({{ d.get('q', 5) }} {{ d.get('q') }})",
       R"([('a', 1), ('b', [1, 2]), ('k', 'v')] ['a', 'b', 'k'] [1, [1, 2], 'v'] 1 5 None)"},
      {R"({{ {'items': 1}['items'] }} {{ d['get']('a') }})", R"(1 1)"},
      {R"({{ xs.append is defined }} {{ s.__class__ is defined }} {{ d.update is defined }})",
       R"(False False False)"},
  });
}

TEST(EvaluatorTest, TreatsUndefinedAsJinja) {
  ExpectRenders({
      {R"([{{ zz }}] {{ zz is defined }} {{ zz == qq }} {{ zz|length }} {{ zz|list }} {{ )"
       R"(zz|default('x') }} {{ not zz }})",
       R"([] False True 0 [] x True)"},
      {R"({% for x in zz %}a{% else %}none{% endfor %})", R"(none)"},
      {R"({{ [zz] }} {{ zz|join }}|{{ ''|default('x', true) }}{{ nil|default('y') }})",
       R"([Undefined] |xNone)"},
  });
}

TEST(EvaluatorTest, CallsTheMethodsOfText) {
  ExpectRenders({
      {R"([{{ '  a b '.strip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ ' a'.lstrip() }}] [{{ )"
       R"('a\n'.rstrip('\n') }}])",
       R"([a b] [a] [a] [a])"},
      {R"({{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(none, 1) }} {{ )"
       R"('a,b,c'.split(',', maxsplit=1) }} {{ ' a b '.split(' ') }})",
       R"(['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c'] ['a', 'b,c'] ['', 'a', 'b', ''])"},
      {R"({{ s.startswith('He') }} {{ s.endswith(('x', 'lo')) }} {{ s.startswith('l') }})",
       R"(True True False)"},
      {R"({{ u.upper() }} {{ u.lower() }} {{ 'hELLO wORLD'.capitalize() }} {{ "it's )"
       R"(a".title() }})",
       R"(STRASSE ΟΔΟΣ 🙂 straße οδος 🙂 Hello world It'S A)"},
      {R"({{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ '-'.join(words) }} {{ )"
       R"('abc'.join('xyz') }})",
       R"(HeLLo HeLlo b-A-c xabcyabcz)"},
  });
}

TEST(EvaluatorTest, RefusesWhatPythonRefuses) {
  for (const char* const source :
       {R"({{ 1 + 'a' }})",       R"({{ 'a' + 1 }})",       R"({{ zz.a }})",
        R"({{ zz + 1 }})",        R"({{ zz() }})",          R"({{ 1 < 'a' }})",
        R"({{ 1 in 2 }})",        R"({{ 1 in 'a' }})",      R"({{ 1 % 0 }})",
        R"({{ s() }})",           R"({{ xs.append(4) }})",  R"({{ d.update({}) }})",
        R"({{ s.nothing() }})",   R"({{ nil[1:] }})",       R"({{ -s }})",
        R"({{ {[]: 1} }})",       R"({{ [] in {} }})",      R"({{ xs[::0] }})",
        R"({{ s.__class__() }})", R"({{ s.split('') }})",   R"({{ s.upper(1) }})",
        R"({{ d.a.b.c }})",       R"({{ '-'.join([1]) }})", R"({{ s.startswith(1) }})"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument);
  }
}

TEST(EvaluatorTest, RefusesIntegersBeyond64Bits) {
  for (const char* const source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 9223372036854775807 * 2 }}",
        "{{ -(-9223372036854775807 - 1) }}", "{{ 1e300|int }}", "{{ 9223372036854775808 }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "64 bits");
  }
}

TEST(EvaluatorTest, NamesWhatIsUndefinedAndItsLine) {
  ExpectFails("\n\n{{ zz.name }}", absl::StatusCode::kInvalidArgument, "line 3: 'zz' is undefined");
  ExpectFails("{{ d.zz.name }}", absl::StatusCode::kInvalidArgument,
              "'dict object' has no attribute 'zz'");
}

TEST(EvaluatorTest, NamesWhatIsNotSupported) {
  ExpectFails("{{ '%s' % 1 }}", absl::StatusCode::kUnimplemented, "% of a text");
  ExpectFails("{{ 1.5 % 1 }}", absl::StatusCode::kUnimplemented, "% of a float");
  ExpectFails("{{ [1] * 2 }}", absl::StatusCode::kUnimplemented, "* of a list");
  ExpectFails("{{ [1] < [2] }}", absl::StatusCode::kUnimplemented, "an order of lists");
  ExpectFails("{{ s[::-1] }}", absl::StatusCode::kUnimplemented, "with a step");
}

}  // namespace
}  // namespace tlm
