# Copies a public header for use outside this project, where the library is "tlm/client/":
#   cmake -DHEADER=client.h -DOUTPUT=.../tlm/client/client.h -DPUBLIC="client.h;status.h" -P ...
# A public header that includes a private one stops the build.
cmake_minimum_required(VERSION 3.25)
file(READ "${HEADER}" text)
string(REGEX MATCHALL "#include \"client/cpp/[^\"]*\"" includes "${text}")
foreach(include IN LISTS includes)
  string(REGEX REPLACE ".*client/cpp/(.*)\"" "\\1" included "${include}")
  if(NOT included IN_LIST PUBLIC)
    message(FATAL_ERROR "${HEADER} includes ${included}, which is not installed")
  endif()
endforeach()
string(REPLACE "#include \"client/cpp/" "#include \"tlm/client/" text "${text}")
file(WRITE "${OUTPUT}" "${text}")
