# Target helpers: one library per folder; its layer is in tests/layers/layers.txt.
#
#   tlm_library(model/config SRCS config.cc DEPS model/base LINK nlohmann_json::nlohmann_json)
#
# makes target `tlm_model_config`; DEPS name folders, LINK outside targets.
# A DEPS entry of the same or of a higher layer stops the configuration.

set(_tlm_layers_file "${PROJECT_SOURCE_DIR}/tests/layers/layers.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_tlm_layers_file}")
file(STRINGS "${_tlm_layers_file}" _tlm_layer_lines REGEX "^[0-9]+ ")
foreach(_line IN LISTS _tlm_layer_lines)
  string(REGEX MATCH "^([0-9]+) (.+)$" _ "${_line}")
  set("_TLM_LAYER_${CMAKE_MATCH_2}" "${CMAKE_MATCH_1}")
endforeach()

function(tlm_target_name folder out)
  string(REPLACE "/" "_" name "tlm_${folder}")
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

# Compile options of all targets.
add_library(tlm_options INTERFACE)
target_compile_features(tlm_options INTERFACE cxx_std_20)
# -ffp-contract=off: fused multiply-adds are written in the code, never chosen by the optimiser;
# otherwise results would depend on inlining.
target_compile_options(tlm_options INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wno-unused-parameter;-ffp-contract=off>")
target_include_directories(tlm_options INTERFACE "${PROJECT_SOURCE_DIR}")
if(TLM_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # In a unity build the compiler cannot see that a class belongs to one source only.
  target_compile_options(tlm_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>")
endif()
if(TLM_WERROR)
  target_compile_options(tlm_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Werror>")
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(tlm_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>")
elseif(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of impossible overlaps when strings are joined (its bug 105651).
  target_compile_options(tlm_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>")
endif()
if(TLM_SANITIZE)
  target_compile_options(tlm_options INTERFACE -fsanitize=${TLM_SANITIZE} -fno-omit-frame-pointer
                                               -fno-sanitize-recover=all)
  target_link_options(tlm_options INTERFACE -fsanitize=${TLM_SANITIZE})
endif()

# A library of one folder. SRCS relative to the folder; DEPS are folders; LINK are outside targets.
function(tlm_library folder)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;LINK" ${ARGN})
  if(NOT DEFINED "_TLM_LAYER_${folder}")
    message(FATAL_ERROR "${folder} has no layer in ${_tlm_layers_file}")
  endif()
  tlm_target_name("${folder}" target)
  set(layer "${_TLM_LAYER_${folder}}")
  set(links tlm_options ${ARG_LINK})
  foreach(dep IN LISTS ARG_DEPS)
    if(NOT DEFINED "_TLM_LAYER_${dep}")
      message(FATAL_ERROR "${folder}: DEPS names ${dep}, which has no layer")
    endif()
    if(NOT "${_TLM_LAYER_${dep}}" LESS "${layer}")
      message(FATAL_ERROR "${folder} (layer ${layer}) may not depend on ${dep} (layer "
                          "${_TLM_LAYER_${dep}}): includes only go down")
    endif()
    tlm_target_name("${dep}" dep_target)
    list(APPEND links "${dep_target}")
  endforeach()
  if(ARG_SRCS)
    list(TRANSFORM ARG_SRCS PREPEND "${PROJECT_SOURCE_DIR}/${folder}/")
    add_library(${target} STATIC ${ARG_SRCS})
    target_link_libraries(${target} PUBLIC ${links})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${links})
  endif()
endfunction()

# GoogleTest's tests in tests/<path>.cc, registered with CTest as one test. They are a binary of
# their own, named after the path; with GROUP a part of the binary of their folder.
#   tlm_test(unit/model/base/float16_test GROUP DEPS model/base LABELS unit)  # unit_model_base_tests
function(tlm_test path)
  cmake_parse_arguments(ARG "GROUP" "TIMEOUT" "DEPS;LINK;LABELS;SRCS;ENV" ${ARGN})
  set(main GTest::gmock_main)
  set(arguments "")
  if(ARG_GROUP)
    get_filename_component(folder "${path}" DIRECTORY)
    get_filename_component(name "${path}" NAME)
    string(REPLACE "/" "_" target "${folder}_tests")
    set(main GTest::gmock)
    set(arguments "--file=${name}.cc")
  else()
    string(REPLACE "/" "_" target "${path}")
  endif()
  if(NOT TARGET ${target})
    add_executable(${target} ${ARG_SRCS})
    if(ARG_GROUP)
      target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/main_of_file.cc")
      set_target_properties(${target} PROPERTIES UNITY_BUILD OFF)
    endif()
  endif()
  target_sources(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/${path}.cc")
  set(links tlm_options ${main} ${ARG_LINK})
  foreach(dep IN LISTS ARG_DEPS)
    tlm_target_name("${dep}" dep_target)
    list(APPEND links "${dep_target}")
  endforeach()
  target_link_libraries(${target} PRIVATE ${links})
  # GoogleTest's macros expand to much code.
  target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O1>")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  if(TLM_SANITIZE MATCHES "thread")
    math(EXPR ARG_TIMEOUT "20 * ${ARG_TIMEOUT}")
  elseif(TLM_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_test(NAME "${path}" COMMAND ${target} ${arguments})
  set_tests_properties("${path}" PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT "TLM_SOURCE_DIR=${PROJECT_SOURCE_DIR};TLM_BIN_DIR=${PROJECT_BINARY_DIR}/bin;${ARG_ENV}")
endfunction()
