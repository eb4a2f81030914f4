#include <gtest/gtest.h>

#include "tests/unit/model/jinja/render.h"

namespace tlm {
namespace {

// The expected texts are what Hugging Face transformers renders.

TEST(TextMethodsTest, DoWhatPythonsDo) {
  ExpectRenders({
      {"[{{ '  a b '.strip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ ' a'.lstrip() }}] [{{ "
       "'a\\n'.rstrip('\\n') }}]",
       "[a b] [a] [a] [a]"},
      {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(none, 1) }} {{ "
       "'a,b,c'.rsplit(',', 1) }} {{ ' a b '.split(' ') }}",
       "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b c'] ['a,b', 'c'] ['', 'a', 'b', '']"},
      {"{{ s.startswith('He') }} {{ s.endswith(('x', 'lo')) }} {{ s.startswith('l', 2) }}",
       "True True True"},
      {"{{ u.upper() }} {{ u.lower() }} {{ 'ǆ ﬁ'.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ "
       "\"it's a\".title() }}",
       "STRASSE ΟΔΟΣ 🙂 straße οδος 🙂 ǅ Fi Hello world It'S A"},
      {"{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'ab'.replace('', '-') }}",
       "HeLLo HeLlo -a-b-"},
      {"{{ s.find('l') }} {{ s.find('z') }} {{ s.rfind('l') }} {{ s.count('l') }} {{ "
       "u.find('🙂') }} {{ s.index('o') }}",
       "2 -1 3 2 12 4"},
      {"{{ '-'.join(words) }} {{ 'abc'.join('xyz') }}", "b-A-c xabcyabcz"},
      {"{{ '5'.zfill(3) }} {{ '-5'.zfill(4) }} {{ 'a'.center(4, '*') }} {{ 'a'.ljust(3, '.') }} {{ "
       "'a'.rjust(3) }}",
       "005 -005 *a** a..   a"},
      {"{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'a'.partition('=') }}",
       "('a', '=', 'b=c') ('a=b', '=', 'c') ('a', '', '')"},
      {"{{ 'abc'.removeprefix('ab') }} {{ 'abc'.removesuffix('bc') }} {{ "
       "'a\\nb\\r\\nc'.splitlines() }}",
       "c a ['a', 'b', 'c']"},
      {"{{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'é'.isalpha() }} {{ ' '.isspace() }} {{ "
       "'AB'.isupper() }} {{ ''.islower() }} {{ '½'.isnumeric() }}",
       "True True True True True False True"},
      {"{{ '{} {1}'.format(1, 2) if false else '{} {}'.format(1, 'a') }} {{ "
       "'{x:>5}|{y!r}'.format(x='a', y='b') }} {{ '{:,.2f} {:x} {:+d} {:^7}|'.format(1234.5, 255, "
       "3, 'm') }}",
       "1 a     a|'b' 1,234.50 ff +3    m   |"},
  });
}

}  // namespace
}  // namespace tlm
