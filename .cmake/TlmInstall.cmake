# The files of `cmake --install`, by component:
#
#   runtime  bin/{tlm-server,tlm,tlm-keys,tlm-openai}: all files that a machine without a GPU needs to serve
#   cuda     lib/tlm/libtlm_cuda.so, if it is built
#   demo     share/tlm/demo: the bundled model
#   docs     share/...: man pages and completions, if target tlm_docs made them
#   devel    the C++ client library with its headers, CMake package `tlm` and pkg-config file
#            `tlm-client`, and the wire contract in share/tlm/proto
#
# Included last, when all targets are known. No installed file names a directory of the build or the
# prefix: the tree is relocatable.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(FILES LICENSE DESTINATION share/doc/tlm COMPONENT runtime)
foreach(program IN ITEMS tlm-server tlm tlm-keys tlm-openai)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION bin COMPONENT runtime)
    if(BUILD_SHARED_LIBS)
      set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
    endif()
  endif()
endforeach()
install(DIRECTORY "${PROJECT_BINARY_DIR}/share/" DESTINATION share COMPONENT docs OPTIONAL)
install(DIRECTORY model/demo/ DESTINATION share/tlm/demo COMPONENT demo
  FILES_MATCHING PATTERN "*.json" PATTERN "*.safetensors")

if(NOT TARGET tlm_client)
  return()
endif()

# A separate directory: other packages may install google/rpc and grpc/health.
set(TLM_INSTALL_INCLUDE_DIR "${CMAKE_INSTALL_INCLUDEDIR}/tlm-client")
set(TLM_INSTALL_PROTO_DIR "${CMAKE_INSTALL_DATADIR}/tlm/proto")
set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/tlm")
set(pkgconfig_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

set_target_properties(tlm_client PROPERTIES EXPORT_NAME client)
set_target_properties(tlm_proto PROPERTIES EXPORT_NAME proto)
set_target_properties(tlm_client tlm_proto PROPERTIES
  POSITION_INDEPENDENT_CODE ON
  INSTALL_RPATH "$ORIGIN"
  VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
target_include_directories(tlm_proto INTERFACE
  "$<INSTALL_INTERFACE:${TLM_INSTALL_INCLUDE_DIR}>")
install(TARGETS tlm_client tlm_proto EXPORT tlmTargets COMPONENT devel
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT devel)
install(EXPORT tlmTargets NAMESPACE tlm:: DESTINATION "${package_dir}" COMPONENT devel)
install(DIRECTORY "${PROJECT_BINARY_DIR}/client/cpp/include/" DESTINATION "${TLM_INSTALL_INCLUDE_DIR}"
  COMPONENT devel FILES_MATCHING PATTERN "*.h")
install(DIRECTORY "${PROJECT_BINARY_DIR}/proto/generated/" DESTINATION "${TLM_INSTALL_INCLUDE_DIR}"
  COMPONENT devel FILES_MATCHING PATTERN "*.h")
install(DIRECTORY proto/ DESTINATION "${TLM_INSTALL_PROTO_DIR}" COMPONENT devel
  FILES_MATCHING PATTERN "*.proto")

configure_package_config_file(client/cpp/install/tlmConfig.cmake.in tlmConfig.cmake
  INSTALL_DESTINATION "${package_dir}" PATH_VARS TLM_INSTALL_PROTO_DIR)
write_basic_package_version_file(tlmConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tlmConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/tlmConfigVersion.cmake"
  DESTINATION "${package_dir}" COMPONENT devel)

# Archives do not list their dependencies.
set(headers_need "grpc++ protobuf absl_status absl_statusor absl_time")
set(sources_need "absl_cord fmt")
if(BUILD_SHARED_LIBS)
  set(TLM_PC_REQUIRES "${headers_need}")
  set(TLM_PC_REQUIRES_PRIVATE "${sources_need}")
else()
  set(TLM_PC_REQUIRES "${headers_need} ${sources_need}")
  set(TLM_PC_REQUIRES_PRIVATE "")
endif()
file(RELATIVE_PATH TLM_PC_PREFIX "/${pkgconfig_dir}" "/")
string(REGEX REPLACE "/$" "" TLM_PC_PREFIX "${TLM_PC_PREFIX}")
configure_file(client/cpp/install/tlm-client.pc.in tlm-client.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/tlm-client.pc" DESTINATION "${pkgconfig_dir}"
  COMPONENT devel)
