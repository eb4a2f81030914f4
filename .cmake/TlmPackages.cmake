# Debian packages of what TlmInstall.cmake installs, by CPack; deploy/packages/build.sh makes them.
#
#   tlm-server       programs, manual pages, completions, the unit with its user and flags, and the
#                    bundled model
#   tlm-server-cuda  the module of the CUDA backend, if it is built
#   tlm-dev          the C++ client library
#
# Components package_* hold the files that belong to a package, but not to an installation by
# `cmake --install`.
if(NOT TARGET tlm-server OR BUILD_SHARED_LIBS OR TLM_SANITIZE)
  return()
endif()

set(TLM_PACKAGE_CONTACT "tlm maintainers <maintainers@tlm.example>" CACHE STRING
    "Maintainer that the Debian packages name")
set(TLM_PACKAGE_REVISION 1 CACHE STRING "Debian revision, the last part of the packages' version")

set(packages_dir "${PROJECT_SOURCE_DIR}/deploy/packages")
set(systemd_dir "${PROJECT_SOURCE_DIR}/deploy/systemd")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${systemd_dir}/tlm-server.service")
file(READ "${systemd_dir}/tlm-server.service" unit)
string(REPLACE "/usr/local/bin/" "/usr/bin/" unit "${unit}")
file(WRITE "${PROJECT_BINARY_DIR}/packages/tlm-server.service" "${unit}")
install(FILES "${PROJECT_BINARY_DIR}/packages/tlm-server.service" DESTINATION lib/systemd/system
  COMPONENT package_server EXCLUDE_FROM_ALL)
install(FILES "${systemd_dir}/tlm-sysusers.conf" DESTINATION lib/sysusers.d RENAME tlm-server.conf
  COMPONENT package_server EXCLUDE_FROM_ALL)
install(FILES "${systemd_dir}/server.flags" "${systemd_dir}/tlm-server.env" DESTINATION /etc/tlm
  COMPONENT package_server EXCLUDE_FROM_ALL)
# Compiled in; the licences of shared libraries are in their own packages.
install(FILES /usr/share/doc/nlohmann-json3-dev/copyright DESTINATION share/doc/tlm-server
  RENAME nlohmann-json.copyright COMPONENT package_server EXCLUDE_FROM_ALL OPTIONAL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tlm)
set(CPACK_DEBIAN_PACKAGE_RELEASE "${TLM_PACKAGE_REVISION}")
set(CPACK_PACKAGE_CONTACT "${TLM_PACKAGE_CONTACT}")
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
# DESTDIR, as files in /etc are not below the prefix.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PRE_BUILD_SCRIPTS "${packages_dir}/finish.cmake")
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_COMPONENTS_ALL)

# tlm_package(server tlm-server runtime docs): the name of a package and its components.
macro(tlm_package group name)
  install(FILES "${packages_dir}/copyright" DESTINATION share/doc/${name}
    COMPONENT package_${group} EXCLUDE_FROM_ALL)
  string(TOUPPER "${group}" upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name})
  foreach(component IN ITEMS ${ARGN} package_${group})
    list(APPEND CPACK_COMPONENTS_ALL ${component})
    string(TOUPPER "${component}" upper)
    set(CPACK_COMPONENT_${upper}_GROUP ${group})
  endforeach()
endmacro()

tlm_package(server tlm-server runtime docs demo)
set(CPACK_DEBIAN_SERVER_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_SERVER_PACKAGE_DEPENDS "systemd | systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_SERVER_DESCRIPTION "gRPC server for transformer language models, and its client
tlm-server serves a decoder-only transformer language model over gRPC, with
continuous batching and a paged KV cache. tlm is the client for the command
line, tlm-keys manages API keys, tlm-openai serves OpenAI's HTTP API before
servers. The service is installed, but neither enabled nor started.")
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA "${packages_dir}/conffiles;${packages_dir}/postinst"
    "${packages_dir}/prerm;${packages_dir}/postrm")

if(TLM_CUDA_BUILD)
  tlm_package(cuda tlm-server-cuda cuda)
  set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "tlm-server (= ${PROJECT_VERSION}-${TLM_PACKAGE_REVISION})")
  # The toolkit's libraries may be of no package.
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${CUDAToolkit_LIBRARY_DIR}")
  set(CPACK_DEBIAN_CUDA_PACKAGE_RECOMMENDS
      "libcublas-${CUDAToolkit_VERSION_MAJOR}-${CUDAToolkit_VERSION_MINOR}")
  set(CPACK_DEBIAN_CUDA_DESCRIPTION "CUDA backend of tlm-server
The module with which tlm-server computes on NVIDIA GPUs. It needs NVIDIA's
driver, and cuBLAS of CUDA ${CUDAToolkit_VERSION_MAJOR}.")
endif()

tlm_package(devel tlm-dev devel)
set(CPACK_DEBIAN_DEVEL_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVEL_PACKAGE_DEPENDS "libgrpc++-dev, libprotobuf-dev, libabsl-dev, libfmt-dev")
set(CPACK_DEBIAN_DEVEL_DESCRIPTION "C++ client library of tlm-server
A static library with headers, a CMake package, a pkg-config file and the
definition of the protocol.")

include(CPack)
