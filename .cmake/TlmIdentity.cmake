# The identity of a program or module: a hash of what decides the numbers that it computes (sources,
# compiler, flags), and of nothing else: neither directories nor the linker's options.
#
#   tlm_identify(TARGET [TEXT...])     TEXT: what else decides them, for this target alone
#
# links an ELF note into TARGET, which server/serving/build_info.h reads. It is made when the target
# is built, from the files as they are then.
file(GLOB_RECURSE TLM_IDENTITY_FILES RELATIVE "${PROJECT_SOURCE_DIR}" CONFIGURE_DEPENDS
     model/*.cc model/*.h model/*.inc model/*.cu model/*.cmake model/CMakeLists.txt
     server/*.cc server/*.h server/CMakeLists.txt proto/*.proto proto/CMakeLists.txt)
list(APPEND TLM_IDENTITY_FILES CMakeLists.txt .cmake/TlmTargets.cmake)
list(SORT TLM_IDENTITY_FILES)

# The first line, without the name that the compiler was called by: the distribution's version.
execute_process(COMMAND "${CMAKE_CXX_COMPILER}" --version OUTPUT_VARIABLE _tlm_compiler)
string(REGEX REPLACE "\n.*" "" _tlm_compiler "${_tlm_compiler}")
string(REGEX REPLACE "^[^ ]+ " "" _tlm_compiler "${_tlm_compiler}")

function(tlm_identify target)
  string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
  set(flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}} ${TLM_SANITIZE} \
${CMAKE_INTERPROCEDURAL_OPTIMIZATION} ${ARGN}")
  string(REGEX REPLACE "-f[a-z]+-prefix-map=[^ ]*" "" flags "${flags}")
  string(REGEX REPLACE "[ ;]+" " " flags "${flags}")
  set(source "${CMAKE_CURRENT_BINARY_DIR}/${target}_identity.cc")
  set(script "${PROJECT_SOURCE_DIR}/.cmake/write_identity.cmake")
  list(TRANSFORM TLM_IDENTITY_FILES PREPEND "${PROJECT_SOURCE_DIR}/" OUTPUT_VARIABLE paths)
  add_custom_command(
    OUTPUT "${source}"
    COMMAND "${CMAKE_COMMAND}" "-DROOT=${PROJECT_SOURCE_DIR}" "-DFILES=${TLM_IDENTITY_FILES}"
            "-DTEXT=${CMAKE_SYSTEM_PROCESSOR} ${_tlm_compiler} ${flags}" "-DOUT=${source}"
            -P "${script}"
    DEPENDS ${paths} "${script}"
    COMMENT "Hashing the sources of ${target}"
    VERBATIM)
  # A target of its own waits for none of the libraries of TARGET.
  add_library(${target}_identity OBJECT "${source}")
  set_target_properties(${target}_identity PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_identity>)
endfunction()
