# Run by CPack between the installation and the archives: what Debian's policy asks of files that
# other systems keep elsewhere, uncompressed or not at all.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(GLOB packages "${CPACK_TEMPORARY_INSTALL_DIRECTORY}/*")
foreach(package IN LISTS packages)
  set(share "${package}${CPACK_INSTALL_PREFIX}/share")
  if(EXISTS "${share}/zsh/site-functions")
    file(RENAME "${share}/zsh/site-functions" "${share}/zsh/vendor-completions")
  endif()
  file(GLOB copyright "${share}/doc/*/copyright")
  get_filename_component(doc "${copyright}" DIRECTORY)
  file(WRITE "${doc}/changelog.Debian"
       "tlm (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Built from the sources of version ${CPACK_PACKAGE_VERSION}.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  file(GLOB uncompressed "${share}/man/*/*" "${doc}/changelog.Debian")
  execute_process(COMMAND gzip -9n ${uncompressed} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
