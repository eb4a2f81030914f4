#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(FiltersTest, DoWhatJinjasDo) {
  ExpectRenders({
      {R"({{ '  a '|trim }}{{ 'xax'|trim('x') }} {{ s|length }} {{ u|length }} {{ d|length )"
       R"(}})",
       R"(aa 5 13 3)"},
      {R"({{ s|upper }} {{ s|lower }} {{ 'a-b (c'|title }} {{ 'aB'|capitalize }} {{ )"
       R"(5|string + '!' }})",
       R"(HELLO hello A-B (C Ab 5!)"},
      {R"({{ xs|join(', ') }} {{ 'abc'|join('-') }} {{ users|join('+', attribute='name') }} )"
       R"({{ [none, 1.0, true]|join }})",
       R"(3, 1, 2 a-b-c Zoe+amy+Bob None1.0True)"},
      {R"({{ xs|first }} {{ xs|last }} {{ s|first }}{{ s|last }} {{ []|first is defined }} )"
       R"({{ xs|list }} {{ s|list }})",
       R"(3 2 Ho False [3, 1, 2] ['H', 'e', 'l', 'l', 'o'])"},
      {R"({{ xs|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ )"
       R"(xs|sort(reverse=true) }} {{ )"
       R"(users|sort(attribute='name')|map(attribute='name')|list }})",
       R"([1, 2, 3] ['A', 'b', 'c'] ['A', 'b', 'c'] [3, 2, 1] ['amy', 'Bob', 'Zoe'])"},
      {R"({{ [1, 2, 1, 'a', 'A']|unique|list }} {{ xs|reverse|list }} {{ )"
       R"(users|map(attribute='age', default=0)|list }})",
       R"([1, 2, 'a'] [2, 1, 3] [3, 20, 0])"},
      {R"({{ words|map('upper')|list }} {{ words|map('replace', 'A', 'z')|join }} {{ )"
       R"(users|map(attribute='age')|list }})",
       R"(['B', 'A', 'C'] bzc [3, 20, Undefined])"},
      {R"({{ users|selectattr('age')|map(attribute='name')|list }} {{ )"
       R"(users|rejectattr('age', 'defined')|list }} {{ users[:2]|selectattr('age', 'gt', )"
       R"(5)|list }})",
       R"(['Zoe', 'amy'] [{'name': 'Bob'}] [{'age': 20, 'name': 'amy'}])"},
      {R"({{ xs|select('odd')|list }} {{ xs|reject('equalto', 1)|list }} {{ xs|select|list )"
       R"(}} {{ nil|select('odd')|list }} {{ nil|map('upper')|list }})",
       R"([3, 1] [3, 2] [3, 1, 2] [] [])"},
      {R"({{ d|items|list }} {{ d|dictsort }} {{ {'b': 1, 'a': 2}|dictsort(by='value') }} )"
       R"({{ {'b': 1, 'A': 2}|dictsort(reverse=true) }})",
       R"([('a', 1), ('b', [1, 2]), ('k', 'v')] [('a', 1), ('b', [1, 2]), ('k', 'v')] )"
       R"([('b', 1), ('a', 2)] [('b', 1), ('A', 2)])"},
      {R"({{ '42'|int }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ ' +7 '|int }} )"
       R"({{ 3.9|int }} {{ '1e3'|int }} {{ 'inf'|int }} {{ nil|int }} {{ t|int }} {{ )"
       R"('+-7'|int }})",
       R"(42 4 0 -1 7 3 1000 0 0 1 0)"},
      {R"({{ ('<'|safe) + '<b>&"\'' }} {{ ['<'|safe] }} {{ '<' + ('<'|safe) }} {{ '<' ~ )"
       R"(('<'|safe) ~ '<' }} {{ (' < '|safe|trim) + '<' }})",
       R"(<&lt;b&gt;&amp;&#34;&#39; [Markup('<')] &lt;< <<< <&lt;)"},
      {R"({{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent('> ', )"
       R"(blank=true) }}|{{ 'a\r\n'|indent }}|)",
       R"(a
    b

    c|  a
  b|a
> 
> b|a
|)"},
      {R"({{ '%s-%s %%'|format(1, 'b') }} {{ 'aXbX'|replace('X', 1) }} {{ )"
       R"('aXbX'|replace('X', 'y', 1) }} {{ zz|default('x') }} {{ ''|d('y', true) }})",
       R"(1-b % a1b1 aybX x y)"},
      {R"({% set once = [1, 2]|map('string') %}{{ once|first }}{{ once|list }}{{ once|list )"
       R"(}})",
       R"(1['2'][])"},
      {R"({{ 'true' if []|map('upper') else 'false' }})", R"(true)"},
  });
}

TEST(FiltersTest, FindTheLeastAndTheGreatest) {
  ExpectRenders({
      {"{{ xs|min }}{{ xs|max }} {{ words|min }}{{ words|max(case_sensitive=true) }} {{ "
       "'hello'|max }}",
       "13 Ac o"},
      {"{{ (users[:2]|max(attribute='age')).name }} {{ []|min is defined }} {{ [1.0, 1]|min }}",
       "amy False 1.0"},
  });
  for (const char* const source : {"{{ [1, 'a']|min }}", "{{ 1|max }}", "{{ [none, 1]|max }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "line 1");
  }
}

TEST(FiltersTest, FormatFillsFields) {
  ExpectRenders({
      {"{{ '{}-{}'.format(1, 'b') }} {{ '{1}{0}{1}'.format('a', 2.5) }} {{ '{{{}}}'.format(xs) }}",
       "1-b 2.5a2.5 {[3, 1, 2]}"},
      {"{{ '<{n}|{i:d}>'.format(i=7, n=none) }} {{ '{:}'.format(true) }} {{ '{:d}'.format(true) }}",
       "<None|7> True 1"},
      {"{{ 'plain'.format(1) }} [{{ '{}'.format(zz) }}]", "plain []"},
  });
  for (const char* const source :
       {"{{ '{}{}'.format(1) }}", "{{ '{0}{}'.format(1, 2) }}", "{{ '{}{0}'.format(1, 2) }}",
        "{{ '{x}'.format(1) }}", "{{ '{'.format(1) }}", "{{ '}'.format(1) }}",
        "{{ '{:d}'.format('a') }}", "{{ '{99999999999999999999}'.format('a') }}"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument, "line 1");
  }
  for (const char* const field : {"{:>5}", "{!r}", "{0.a}", "{0[a]}", "{:{}}"}) {
    ExpectFails(std::string("{{ '") + field + "'.format(1, 2) }}", absl::StatusCode::kUnimplemented,
                "format: ");
  }
}

TEST(FiltersTest, ReadJson) {
  ExpectRenders({{R"({{ ('{"b": [1.0, null], "a": "ü"}'|from_json)|tojson }})",
                  R"({"b": [1.0, null], "a": "ü"})"}});
  ExpectFails("{{ '{'|from_json }}", absl::StatusCode::kInvalidArgument,
              "line 1: is not valid JSON at line 1, column 2");
  ExpectFails("{{ 1|from_json }}", absl::StatusCode::kInvalidArgument, "needs a str, not int");
}

TEST(FiltersTest, WriteJsonAsPythonDoes) {
  ExpectRenders({
      {R"({{ {'b': 1, 'a': [true, none, 1.0, 'é"\n\x01/<>\'']}|tojson }})",
       R"({"b": 1, "a": [true, null, 1.0, "é\"\n\u0001/<>'"]})"},
      {R"({{ {'b': 1, 'a': []}|tojson(indent=2) }})",
       R"({
  "b": 1,
  "a": []
})"},
      {R"({{ [1, {'a': {}}]|tojson(indent=4) }})",
       R"([
    1,
    {
        "a": {}
    }
])"},
      {R"({{ {'b': 1, 'a': 2}|tojson(sort_keys=true) }} {{ [1, 2]|tojson(separators=(',', )"
       R"(':')) }} {{ 'é🙂'|tojson(ensure_ascii=true) }} {{ [1]|tojson(indent='\t') }})",
       R"({"a": 2, "b": 1} [1,2] "\u00e9\ud83d\ude42" [
	1
])"},
      {R"({{ {1: 'a', true: 'b', none: 'c', 1.5: 'd'}|tojson }} {{ (1, 2)|tojson }} {{ )"
       R"(1e20|tojson }})",
       R"({"1": "b", "null": "c", "1.5": "d"} [1, 2] 1e+20)"},
  });
}

TEST(FiltersTest, TestWhatJinjaTests) {
  ExpectRenders({
      {R"({{ 1 is odd }} {{ 2 is even }} {{ n is number }} {{ n is integer }} {{ f is float )"
       R"(}} {{ t is boolean }} {{ t is number }} {{ t is integer }})",
       R"(True True True True True True True False)"},
      {R"({{ s is string }} {{ d is mapping }} {{ xs is sequence }} {{ s is sequence }} {{ )"
       R"(xs is iterable }} {{ n is iterable }} {{ zz is iterable }} {{ (xs|map('string')) )"
       R"(is sequence }})",
       R"(True True True True True False True False)"},
      {R"({{ nil is none }} {{ s is not none }} {{ t is true }} {{ 1 is true }} {{ t is )"
       R"(false }} {{ zz is undefined }} {{ s is defined }})",
       R"(True True True False False True True)"},
      {R"({{ 3 is eq 3 }} {{ 3 is equalto(4) }} {{ 3 is ne 4 }} {{ 3 is gt 2 }} {{ 3 is lt )"
       R"(2 }} {{ 3 is in xs }} {{ 'a' is not in ['b'] }})",
       R"(True False True True False True True)"},
  });
}

TEST(FiltersTest, RefuseWhatJinjaRefuses) {
  for (const char* const source : {R"({{ n|length }})",
                                   R"({{ n|list }})",
                                   R"({{ n|join }})",
                                   R"({{ [1, 'a']|sort }})",
                                   R"({{ zz|tojson }})",
                                   R"({{ raise_exception|tojson }})",
                                   R"({{ {(1, 2): 3}|tojson }})",
                                   R"({{ xs|items }})",
                                   R"({{ xs|map }})",
                                   R"({{ xs|map('nothing')|list }})",
                                   R"({{ xs|select('nothing')|list }})",
                                   R"({{ s|trim(1) }})",
                                   R"({{ s|join(nothing=1) }})",
                                   R"({{ s|replace('a') }})",
                                   R"({{ s|upper(1) }})",
                                   R"({{ xs|map('upper')|length }})",
                                   R"({{ xs|map('upper')|last }})",
                                   R"({{ s is odd }})",
                                   R"({{ n is eq }})",
                                   R"({{ '%s'|format }})",
                                   R"({{ '%s'|format(1, 2) }})",
                                   R"({{ s|tojson(separators='x') }})"}) {
    ExpectFails(source, absl::StatusCode::kInvalidArgument);
  }
}

TEST(FiltersTest, AreNamedAtParseWhenNotSupported) {
  ExpectFails("a\n{% if no %}{{ s|urlize }}{% endif %}", absl::StatusCode::kUnimplemented,
              "line 2: filter 'urlize'");
  ExpectFails("{% if no %}{{ s is nothing }}{% endif %}", absl::StatusCode::kUnimplemented,
              "test 'nothing'");
}

TEST(FiltersTest, NameWhatTheyDoNotSupport) {
  ExpectFails("{{ '%5s'|format(1) }}", absl::StatusCode::kUnimplemented, "only '%s'");
  ExpectFails("{{ users|sort(attribute='name,age') }}", absl::StatusCode::kUnimplemented,
              "several attributes");
  ExpectFails("{{ 'ab'|replace('', '-') }}", absl::StatusCode::kUnimplemented, "empty text");
}

}  // namespace
}  // namespace tlm
