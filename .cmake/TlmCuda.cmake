# The options of the CUDA backend.
#
#   -DTLM_CUDA=AUTO   built if a CUDA toolkit of version 12 or newer is found
#   -DTLM_CUDA=ON     built; without a toolkit the configuration fails
#   -DTLM_CUDA=OFF    not built
#
# Sets TLM_CUDA_BUILD and TLM_CUDA_GENCODE and enables the language. The compiler is that of CMAKE_CUDA_COMPILER or
# CUDACXX, else nvcc on the PATH, else /usr/local/cuda/bin/nvcc. No GPU and no driver are needed.

set(TLM_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO, ON or OFF")
set_property(CACHE TLM_CUDA PROPERTY STRINGS AUTO ON OFF)

# Sets `why_not` to the reason why the backend cannot be built; empty if it can.
function(_tlm_find_cuda why_not)
  set(${why_not} "" PARENT_SCOPE)
  if(TLM_SANITIZE)
    set(${why_not} "the build has sanitizers" PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(nvcc "${CMAKE_CUDA_COMPILER}")
  elseif(DEFINED ENV{CUDACXX})
    set(nvcc "$ENV{CUDACXX}")
  else()
    find_program(TLM_NVCC nvcc PATHS /usr/local/cuda/bin)
    mark_as_advanced(TLM_NVCC)
    set(nvcc "${TLM_NVCC}")
  endif()
  if(NOT nvcc)
    set(${why_not} "no nvcc on the PATH or in /usr/local/cuda/bin" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE said ERROR_QUIET RESULT_VARIABLE failed)
  if(failed OR NOT said MATCHES "V([0-9]+\\.[0-9]+\\.[0-9]+)")
    set(${why_not} "${nvcc} does not tell its version" PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_MATCH_1 VERSION_LESS 12)
    set(${why_not} "${nvcc} has version ${CMAKE_MATCH_1}, 12.0 is needed" PARENT_SCOPE)
    return()
  endif()
  set(CMAKE_CUDA_COMPILER "${nvcc}" CACHE FILEPATH "CUDA compiler")
  # Host and device code share structs: one compiler for both.
  if(NOT CMAKE_CUDA_HOST_COMPILER AND NOT DEFINED ENV{CUDAHOSTCXX})
    set(CMAKE_CUDA_HOST_COMPILER "${CMAKE_CXX_COMPILER}" CACHE FILEPATH "Host compiler of nvcc")
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(${why_not} "${nvcc} compiles nothing with ${CMAKE_CXX_COMPILER}" PARENT_SCOPE)
    return()
  endif()
  find_package(CUDAToolkit QUIET)
  if(NOT TARGET CUDA::cublasLt OR NOT TARGET CUDA::cudart_static)
    set(${why_not} "the toolkit of ${nvcc} has no cuBLASLt or no static runtime" PARENT_SCOPE)
  endif()
endfunction()

# CMake 3.25.1 (Debian 12) requires a library that CUDA 13 no longer has.
if(CMAKE_VERSION VERSION_LESS 3.26 AND NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()

set(TLM_CUDA_BUILD OFF)
if(NOT TLM_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "TLM_CUDA is ${TLM_CUDA}, it may be AUTO, ON or OFF")
elseif(TLM_CUDA STREQUAL "OFF")
  message(STATUS "CUDA backend: not built, TLM_CUDA is OFF")
else()
  # Each target sets its own: -DCMAKE_CUDA_ARCHITECTURES does not support every form.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  _tlm_find_cuda(why_not)
  if(NOT why_not)
    set(TLM_CUDA_BUILD ON)
  elseif(TLM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TLM_CUDA is ON, but ${why_not}")
  else()
    message(STATUS "CUDA backend: not built, ${why_not}")
  endif()
endif()

if(TLM_CUDA_BUILD)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  # CMake 3.25 does not know that nvcc 12 and 13 support C++20.
  foreach(kind IN ITEMS STANDARD EXTENSION)
    if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
    endif()
  endforeach()
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  # Otherwise machine code and line tables for every device are five times as large.
  string(APPEND CMAKE_CUDA_FLAGS " -Xfatbin=-compress-all")
  # Machine code runs on later GPUs of the same major version: sm_80 on 8.6 and 8.9, sm_100 on 10.3,
  # sm_120 on 12.1. No kernel needs a feature of one GPU alone, so sm_100 and sm_120 share one PTX,
  # which is also what GPUs to come compile for themselves. It must not be PTX of compute_80: that
  # does not wait for earlier kernels (kernels/simt.h), and from 9.0 on kernels overlap.
  set(TLM_CUDA_GENCODE "-gencode=arch=compute_80,code=sm_80" "-gencode=arch=compute_90a,code=sm_90a")
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
    list(APPEND TLM_CUDA_GENCODE "-gencode=arch=compute_90,code=compute_90")
    set(_tlm_machines "sm_80, sm_90a and PTX of 9.0; for sm_100 and sm_120 CUDA 12.8 is needed")
  else()
    list(APPEND TLM_CUDA_GENCODE "-gencode=arch=compute_100,code=[sm_100,sm_120,compute_100]")
    set(_tlm_machines "sm_80, sm_90a, sm_100, sm_120 and PTX of 10.0")
  endif()
  message(STATUS "CUDA backend: built with ${CMAKE_CUDA_COMPILER} ${CMAKE_CUDA_COMPILER_VERSION}, "
                 "for ${_tlm_machines}")
endif()

# The ABI that both sides of the module must share: model/ops/cuda/cuda_module.h. The headers
# are hashed when CMake runs, and CMake runs again when one changes.
set(_tlm_border model/ops/batch.h model/ops/cuda/cuda_module.h model/ops/cuda/device/cuda_options.h
                model/ops/device.h model/ops/ops.h model/sampling/sampling_job.h
                model/tensor/buffer.h model/tensor/dtype.h model/tensor/tensor_view.h)
set(_tlm_border_text "")
foreach(header IN LISTS _tlm_border)
  file(SHA256 "${PROJECT_SOURCE_DIR}/${header}" hash)
  string(APPEND _tlm_border_text "${header} ${hash}\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${header}")
endforeach()
string(SHA256 _tlm_border_hash "${_tlm_border_text}")
string(SUBSTRING "${_tlm_border_hash}" 0 16 _tlm_border_hash)
set(TLM_CUDA_MODULE_ABI "tlm ${PROJECT_VERSION}, ${CMAKE_CXX_COMPILER_ID} \
${CMAKE_CXX_COMPILER_VERSION}, border ${_tlm_border_hash}")
