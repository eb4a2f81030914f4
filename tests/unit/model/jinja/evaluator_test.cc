#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(EvaluatorTest, EvaluatesLiterals) {
  ExpectRenders({
      {"{{ 1 }} {{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }}", "1 1000 31 5 15"},
      {"{{ 1.5 }} {{ 1e3 }} {{ 1E-7 }} {{ 1e16 }} {{ 123456789.123 }} {{ 0.1 + 0.2 }}",
       "1.5 1000.0 1e-07 1e+16 123456789.123 0.30000000000000004"},
      {"{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}", "True True False None None"},
      {"{{ 'a' 'b' \"c\" }}", "abc"},
      {"{{ '\\x41\\u00e9\\101\\q\\'' }}", "AéA\\q'"},
      {"{{ [] }} {{ [1, 'a', [none]] }} {{ () }} {{ (1,) }} {{ (1, 2) }} {{ 1, 2 }}",
       "[] [1, 'a', [None]] () (1,) (1, 2) (1, 2)"},
      {"{{ {} }} {{ {'a': 1, 'b': {'c': [1.0]}} }}", "{} {'a': 1, 'b': {'c': [1.0]}}"},
      {"{{ {'a': 1, 'a': 2, 1: 'x', true: 'y'} }}", "{'a': 2, 1: 'y'}"},
      {"{{ [\"it's\", 'q\"', '\\n\\t\\\\', 'é\\x00\\u200b'] }}",
       "[\"it's\", 'q\"', '\\n\\t\\\\', 'é\\x00\\u200b']"},
  });
}

TEST(EvaluatorTest, EvaluatesOperatorsAsPython) {
  ExpectRenders({
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 6 / 2 }}",
       "3 -4 -2 2 3.5 3.0"},
      {"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}", "1024 0.5 4 64"},
      {"{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1.0 * 3 }}", "3.0 0.5 3.0"},
      {"{{ 'a' + 'b' ~ 1 ~ none ~ [1] }}", "ab1None[1]"},
      {"{{ 'ab' * 3 }} {{ 2 * 'x' }} {{ 'x' * -1 }}| {{ [1] * 2 + [2] }} {{ (1,) + (2,) }}",
       "ababab xx | [1, 1, 2] (1, 2)"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ "
       "'1' == 1 }} {{ true == 1 }}",
       "True False True True True False True"},
      {"{{ 'ell' in s }} {{ 1 in xs }} {{ 9 not in xs }} {{ 'a' in d }} {{ 1 in undefined_name }}",
       "True True True True False"},
      {"{{ 0 or 'x' }} {{ 0 and 'x' }} {{ not s }} {{ nil or '' or 3 }}", "x 0 False 3"},
      {"{{ 'y' if t else 'n' }} {{ 'y' if nil }}| {{ 1 if 0 else 2 if 0 else 3 }}", "y | 3"},
      {"{{ -n }} {{ +f }} {{ - -3 }} {{ -n|abs }}", "-7 2.5 3 7"},
      {"{{ true + true }} {{ 3 * false }}", "2 0"},
      {"{{ '%s is %d%%, %.2f|%5s|%-5s|%05d' % ('x', 3, 1.005, 'a', 'b', 42) }}",
       "x is 3%, 1.00|    a|b    |00042"},
      {"{{ '%(a)s' % d }}", "1"},
      {"{{ 9223372036854775807 }} {{ -9223372036854775807 - 1 }}",
       "9223372036854775807 -9223372036854775808"},
  });
}

TEST(EvaluatorTest, ReadsMembersItemsAndSlices) {
  ExpectRenders({
      {"{{ d.a }} {{ d['b'][1] }} {{ d.zz }}| {{ d['zz'] is defined }} {{ users[0].name }} {{ "
       "users.0.name }}",
       "1 2 | False Zoe Zoe"},
      {"{{ xs[0] }} {{ xs[-1] }} {{ xs[9] is defined }} {{ u[-1] }} {{ u[4] }}",
       "3 2 False 🙂 ß"},
      {"{{ xs[1:] }} {{ xs[::-1] }} {{ xs[:-1] }} {{ xs[-2:] }} {{ xs[10:] }} {{ xs[::2] }}",
       "[1, 2] [2, 1, 3] [3, 1] [1, 2] [] [3, 2]"},
      {"{{ s[1:3] }} {{ s[::-1] }} {{ u[4:8] }} {{ u[::-1] }} {{ s[-3:-1] }} {{ s[5:0:-2] }}",
       "el olleH ße Ο 🙂 ΣΟΔΟ eßartS ll ol"},
      {"{{ range(5)[1] }} {{ range(5)[1:3] }} {{ (1, 2, 3)[1:] }}", "1 range(1, 3) (2, 3)"},
      {"{{ d.items() }} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('a') }} {{ d.get('q', "
       "5) }} {{ d.get('q') }}",
       "dict_items([('a', 1), ('b', [1, 2]), ('k', 'v')]) ['a', 'b', 'k'] [1, [1, 2], 'v'] 1 5 "
       "None"},
      {"{{ d['items'] is callable }} {{ {'items': 1}['items'] }} {{ {'items': 1}.items is callable "
       "}}",
       "True 1 True"},
      {"{{ xs.append is defined }} {{ s.__class__ is defined }} {{ d.update is defined }}",
       "False False False"},
      {"{{ xs.index(1) }} {{ xs.count(3) }}", "1 1"},
  });
}

TEST(EvaluatorTest, TreatsUndefinedAsJinja) {
  ExpectRenders({
      {"[{{ zz }}] {{ zz is defined }} {{ zz == qq }} {{ zz|length }} {{ zz|list }} {{ "
       "zz|default('x') }} {{ not zz }}",
       "[] False True 0 [] x True"},
      {"{% for x in zz %}a{% else %}none{% endfor %}", "none"},
      {"{{ [zz] }} {{ zz|join }}|{{ ''|default('x', true) }}{{ nil|default('y') }}",
       "[Undefined] |xNone"},
  });
}

TEST(EvaluatorTest, RefusesWhatPythonRefuses) {
  for (const char* const source :
       {"{{ 1 + 'a' }}",       "{{ 'a' + 1 }}",      "{{ zz.a }}",          "{{ zz + 1 }}",
        "{{ zz() }}",          "{{ 1 < 'a' }}",      "{{ 1 in 2 }}",        "{{ 1 in 'a' }}",
        "{{ 1 / 0 }}",         "{{ 1 // 0 }}",       "{{ 1 % 0 }}",         "{{ 0 ** -1 }}",
        "{{ s() }}",           "{{ xs.append(4) }}", "{{ d.update({}) }}",  "{{ s.nothing() }}",
        "{{ nil[1:] }}",       "{{ -s }}",           "{{ {[]: 1} }}",       "{{ [] in {} }}",
        "{{ '%d' % 'a' }}",    "{{ '%s' % () }}",    "{{ '%s' % (1, 2) }}", "{{ s[::0] }}",
        "{{ s.__class__() }}", "{{ s.split('') }}",  "{{ s.index('z') }}",  "{{ '{}'.format() }}",
        "{{ s.upper(1) }}",    "{{ d.a.b.c }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument);
  }
}

TEST(EvaluatorTest, RefusesIntegersBeyond64Bits) {
  for (const char* const source :
       {"{{ 9223372036854775807 + 1 }}", "{{ 2 ** 64 }}", "{{ 9223372036854775807 * 2 }}",
        "{{ -(-9223372036854775807 - 1) }}", "{{ '9223372036854775808'|int }}", "{{ 1e300|int }}",
        "{{ (-9223372036854775807 - 1) // -1 }}", "{{ 9223372036854775808 }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "64 bits");
  }
}

TEST(EvaluatorTest, NamesWhatIsUndefinedAndItsLine) {
  ExpectFails("\n\n{{ zz.name }}", absl::StatusCode::kInvalidArgument, "line 3: 'zz' is undefined");
  ExpectFails("{{ d.zz.name }}", absl::StatusCode::kInvalidArgument,
              "'dict object' has no attribute 'zz'");
}

TEST(EvaluatorTest, NamesMethodsThatAreNotSupported) {
  ExpectFails("{{ s.encode() }}", absl::StatusCode::kUnimplemented, "str.encode");
  ExpectFails("{{ dict.fromkeys is defined }}{{ d.fromkeys(xs) }}",
              absl::StatusCode::kUnimplemented, "dict.fromkeys");
  ExpectFails("{{ cycler(1) }}", absl::StatusCode::kUnimplemented, "cycler");
}

}  // namespace
}  // namespace tlm
