#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(FiltersTest, DoWhatJinjasDo) {
  ExpectRenders({
      {"{{ '  a '|trim }}{{ 'xax'|trim('x') }} {{ s|length }} {{ u|length }} {{ d|count }}",
       "aa 5 13 3"},
      {"{{ s|upper }} {{ s|lower }} {{ 'a-b (c'|title }} {{ 'aB'|capitalize }}",
       "HELLO hello A-B (C Ab"},
      {"{{ xs|join(', ') }} {{ 'abc'|join('-') }} {{ users|join('+', attribute='name') }} {{ "
       "[none, 1.0, true]|join }}",
       "3, 1, 2 a-b-c Zoe+amy+Bob None1.0True"},
      {"{{ xs|first }} {{ xs|last }} {{ s|first }} {{ []|first is defined }} {{ xs|list }} {{ "
       "s|list }}",
       "3 2 H False [3, 1, 2] ['H', 'e', 'l', 'l', 'o']"},
      {"{{ xs|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ "
       "xs|sort(reverse=true) }} {{ users|sort(attribute='name')|map(attribute='name')|list }}",
       "[1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] ['amy', 'Bob', 'Zoe']"},
      {"{{ [1, 2, 1, 'a', 'A']|unique|list }} {{ xs|reverse|list }} {{ s|reverse }} {{ xs|min }} "
       "{{ xs|max }} {{ xs|sum }} {{ users|map(attribute='age', default=0)|sum }}",
       "[1, 2, 'a'] [2, 1, 3] olleH 1 3 6 23"},
      {"{{ words|map('upper')|list }} {{ words|map('replace', 'A', 'z')|join }} {{ "
       "users|map(attribute='age')|list }}",
       "['B', 'A', 'C'] bzc [3, 20, Undefined]"},
      {"{{ users|selectattr('age')|map(attribute='name')|list }} {{ users|rejectattr('age', "
       "'defined')|list }} {{ users[:2]|selectattr('age', 'gt', 5)|list }} {{ "
       "xs|select('odd')|list }} {{ xs|reject('equalto', 1)|list }} {{ xs|select|list }}",
       "['Zoe', 'amy'] [{'name': 'Bob'}] [{'age': 20, 'name': 'amy'}] [3, 1] [3, 2] [3, 1, 2]"},
      {"{{ d|items|list }} {{ d|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} {{ {'b': "
       "1, 'A': 2}|dictsort(reverse=true) }}",
       "[('a', 1), ('b', [1, 2]), ('k', 'v')] [('a', 1), ('b', [1, 2]), ('k', 'v')] [('b', 1), "
       "('a', 2)] [('b', 1), ('A', 2)]"},
      {"{{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ 'ff'|int(base=16) }} {{ "
       "3.9|int }} {{ '1.5'|float }} {{ 'x'|float }} {{ nil|int }}",
       "42 4 0 -1 255 3 1.5 0.0 0"},
      {"{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42.55|round(1, 'floor') }} {{ "
       "42.51|round(1, 'ceil') }} {{ 7|round }} {{ -3|abs }}",
       "2.0 4.0 2.67 42.5 42.6 7 3"},
      {"{{ 'a<b>&\"\\''|e }} {{ ('<'|safe) + '<' }} {{ ['<'|e] }} {{ '<'|e|e }}",
       "a&lt;b&gt;&amp;&#34;&#39; <&lt; [Markup('&lt;')] &lt;"},
      {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb'|indent('> ', "
       "blank=true) }}",
       "a\n    b\n\n    c|  a\n  b|a\n> \n> b"},
      {"{{ [1, 2, 3]|batch(2)|list }} {{ [1, 2, 3]|batch(2, 'x')|list }} {{ 'a b,c'|wordcount }} "
       "{{ 'a'|center(5) }}|",
       "[[1, 2], [3]] [[1, 2], [3, 'x']] 3   a  |"},
      {"{{ '%s-%s'|format(1, 'b') }} {{ 5|string + '!' }} {{ 'aXbX'|replace('X', 1) }}",
       "1-b 5! a1b1"},
  });
}

TEST(FiltersTest, WriteJsonAsPythonDoes) {
  ExpectRenders({
      {"{{ {'b': 1, 'a': [true, none, 1.0, 'é\"\\n\\x01/<>\\'']}|tojson }}",
       "{\"b\": 1, \"a\": [true, null, 1.0, \"é\\\"\\n\\u0001/<>'\"]}"},
      {"{{ {'b': 1, 'a': []}|tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": []\n}"},
      {"{{ [1, {'a': {}}]|tojson(indent=4) }}", "[\n    1,\n    {\n        \"a\": {}\n    }\n]"},
      {"{{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ [1, 2]|tojson(separators=(',', ':')) }} "
       "{{ 'é🙂'|tojson(ensure_ascii=true) }} {{ [1]|tojson(indent='\\t') }}",
       "{\"a\": 2, \"b\": 1} [1,2] \"\\u00e9\\ud83d\\ude42\" [\n\t1\n]"},
      {"{{ {1: 'a', true: 'b', none: 'c', 1.5: 'd'}|tojson }} {{ (1, 2)|tojson }} {{ 1e20|tojson "
       "}}",
       "{\"1\": \"b\", \"null\": \"c\", \"1.5\": \"d\"} [1, 2] 1e+20"},
  });
}

TEST(FiltersTest, TestWhatJinjaTests) {
  ExpectRenders({
      {"{{ 1 is odd }} {{ 2 is even }} {{ 6 is divisibleby 3 }} {{ n is number }} {{ n is integer "
       "}} {{ f is float }} {{ t is boolean }} {{ t is number }} {{ t is integer }}",
       "True True True True True True True True False"},
      {"{{ s is string }} {{ d is mapping }} {{ xs is sequence }} {{ s is sequence }} {{ d.items() "
       "is sequence }} {{ xs is iterable }} {{ n is iterable }} {{ zz is iterable }}",
       "True True True True False True False True"},
      {"{{ nil is none }} {{ s is not none }} {{ t is true }} {{ 1 is true }} {{ t is false }} {{ "
       "zz is undefined }} {{ raise_exception is callable }}",
       "True True True False False True True"},
      {"{{ 3 is eq 3 }} {{ 3 is equalto(4) }} {{ 3 is ne 4 }} {{ 3 is gt 2 }} {{ 3 is lessthan 2 "
       "}} {{ 3 is in xs }} {{ 'a' is not in ['b'] }} {{ 3 is sameas 3 }}",
       "True False True True False True True True"},
      {"{{ 'AB' is upper }} {{ 'ab' is lower }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ 'x' "
       "is escaped }}",
       "True True True True False"},
  });
}

TEST(FiltersTest, RefuseWhatJinjaRefuses) {
  for (const char* const source : {"{{ n|length }}",
                                   "{{ n|list }}",
                                   "{{ n|join }}",
                                   "{{ [1, 'a']|sort }}",
                                   "{{ zz|tojson }}",
                                   "{{ raise_exception|tojson }}",
                                   "{{ {(1, 2): 3}|tojson }}",
                                   "{{ s|abs }}",
                                   "{{ xs|items }}",
                                   "{{ xs|map }}",
                                   "{{ xs|map('nothing')|list }}",
                                   "{{ xs|select('nothing')|list }}",
                                   "{{ s|round }}",
                                   "{{ 2|round(1, 'up') }}",
                                   "{{ s|trim(1) }}",
                                   "{{ s|join(nothing=1) }}",
                                   "{{ s|replace('a') }}",
                                   "{{ s|upper(1) }}",
                                   "{{ xs|map('upper')|length }}",
                                   "{{ xs|map('upper')|last }}",
                                   "{{ s is odd }}",
                                   "{{ n is divisibleby 0 }}",
                                   "{{ n is eq }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument);
  }
}

TEST(FiltersTest, AreNamedAtParseWhenNotSupported) {
  ExpectFails("a\n{% if no %}{{ s|urlize }}{% endif %}", absl::StatusCode::kUnimplemented,
              "line 2: filter 'urlize'");
  ExpectFails("{{ s is nothing }}", absl::StatusCode::kUnimplemented, "test 'nothing'");
}

TEST(FiltersTest, ReadItemsOnlyWhenAskedForThem) {
  // The second item would fail.
  ExpectRenders(
      {{"{{ [1, 'a']|map('round')|first }}", "1"},
       {"{% set unread = ['a']|map('round') %}fine", "fine"},
       {"{% set once = [1, 2]|map('string') %}{{ once|list }}{{ once|list }}", "['1', '2'][]"},
       {"{{ 'true' if []|map('upper') else 'false' }}", "true"}});
}

}  // namespace
}  // namespace tlm
