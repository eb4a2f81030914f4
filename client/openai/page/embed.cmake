# Writes a source file with the contents of a page: cmake -DPAGE=index.html -DOUTPUT=page.cc -P
# embed.cmake. A page that does not exist is an empty one.
set(hex "")
if(EXISTS "${PAGE}")
  file(READ "${PAGE}" hex HEX)
endif()
string(LENGTH "${hex}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
string(REGEX REPLACE "(('.x..',)('.x..',)('.x..',)('.x..',)('.x..',)('.x..',)('.x..',)('.x..',))" "\\1\n" bytes
       "${bytes}")
file(WRITE "${OUTPUT}" "// Made from ${PAGE} by embed.cmake.
#include <cstddef>

namespace tlm::openai {
extern const char kPage[];
extern const std::size_t kPageSize;
const char kPage[] = {${bytes} '\\0'};
const std::size_t kPageSize = ${size};
}  // namespace tlm::openai
")
