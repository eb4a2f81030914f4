# Manual pages and shell completions, made by the programs from their own flags. Target `tlm_docs`
# puts them below ${PROJECT_BINARY_DIR}/share, where an installation has them:
#
#   man/man1/tlm.1  man/man8/{tlm-server,tlm-keys}.8  bash-completion/completions/tlm
#   zsh/site-functions/_tlm  fish/vendor_completions.d/tlm.fish
if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
  message(STATUS "The programs cannot run here: no manual pages and shell completions")
  return()
endif()

set(_tlm_docs)
# What a program prints, as a file: tlm_doc(man/man1/tlm.1 tlm help --format=man)
function(tlm_doc path program)
  set(file "${PROJECT_BINARY_DIR}/share/${path}")
  get_filename_component(folder "${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  add_custom_command(OUTPUT "${file}"
    COMMAND "$<TARGET_FILE:${program}>" ${ARGN} > "${file}.new"
    COMMAND "${CMAKE_COMMAND}" -E rename "${file}.new" "${file}"
    DEPENDS ${program}
    COMMENT "Generating share/${path}"
    VERBATIM)
  set(_tlm_docs ${_tlm_docs} "${file}" PARENT_SCOPE)
endfunction()

tlm_doc(man/man1/tlm.1 tlm help --format=man)
tlm_doc(man/man8/tlm-server.8 tlm-server --helpman)
tlm_doc(man/man8/tlm-keys.8 tlm-keys --helpman)
tlm_doc(bash-completion/completions/tlm tlm completion bash)
tlm_doc(zsh/site-functions/_tlm tlm completion zsh)
tlm_doc(fish/vendor_completions.d/tlm.fish tlm completion fish)
add_custom_target(tlm_docs ALL DEPENDS ${_tlm_docs})
