# SPDX-License-Identifier: Apache-2.0
# Finds nvcc, headers and runtime of the same toolkit, and the architectures that this nvcc can
# compile. No GPU is needed. Sets CGP_NVCC, CGP_CUDA_INCLUDE, CGP_CUDART, CGP_CUDA_COMPILED (a subset
# of CGP_CUDA_ARCHITECTURES), and CUDA_MISSING: why the plug-in `cuda` cannot be built; "": it can.
set(CUDA_MISSING "")
# 80 is A100, 90 is H100 and H200, 100 is B200. Later GPUs use the PTX of the last one.
set(CGP_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "Compute capabilities of the kernels; the last one for later GPUs, too")

find_program(CGP_NVCC nvcc PATHS /usr/local/cuda/bin DOC "NVIDIA's compiler")
if(NOT CGP_NVCC)
  set(CUDA_MISSING "there was no nvcc")
  return()
endif()

# The system's paths may have another toolkit, so nvcc's own directory comes first. A distribution
# may keep headers elsewhere. The runtime is the one beside the headers.
file(REAL_PATH ${CGP_NVCC} nvcc)
cmake_path(GET nvcc PARENT_PATH directory)
cmake_path(GET directory PARENT_PATH directory)
find_path(CGP_CUDA_INCLUDE cuda_runtime_api.h NO_DEFAULT_PATH
          PATHS ${directory}/include ${directory}/targets/x86_64-linux/include)
find_path(CGP_CUDA_INCLUDE cuda_runtime_api.h)
cmake_path(GET CGP_CUDA_INCLUDE PARENT_PATH directory)
find_library(CGP_CUDART cudart_static NO_DEFAULT_PATH
             PATHS ${directory}/lib64 ${directory}/lib ${directory}/lib/x86_64-linux-gnu)
if(NOT CGP_CUDA_INCLUDE OR NOT CGP_CUDART)
  set(CUDA_MISSING "${CGP_NVCC} had no cuda_runtime_api.h or no libcudart_static.a")
  return()
endif()

# Versions are 1000 major + 10 minor.
execute_process(COMMAND ${CGP_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
set(nvcc_version "?")
if(version MATCHES "release ([0-9]+)\\.([0-9]+)")
  math(EXPR nvcc_version "1000 * ${CMAKE_MATCH_1} + 10 * ${CMAKE_MATCH_2}")
endif()
file(STRINGS ${CGP_CUDA_INCLUDE}/cuda_runtime_api.h version REGEX "#define CUDART_VERSION +[0-9]+")
string(REGEX REPLACE ".*CUDART_VERSION +([0-9]+).*" "\\1" header_version "${version}")
if(NOT header_version STREQUAL nvcc_version)
  set(CUDA_MISSING "${CGP_NVCC} has version ${nvcc_version}, but ${CGP_CUDA_INCLUDE} has ${header_version}")
  message(WARNING "CUDA: ${CUDA_MISSING}: no plug-in (set CGP_NVCC, CGP_CUDA_INCLUDE and CGP_CUDART to one toolkit)")
  return()
endif()

# An nvcc without this option is asked for all architectures.
execute_process(COMMAND ${CGP_NVCC} --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET RESULT_VARIABLE failed)
set(compiled "")
set(left_out "")
foreach(arch ${CGP_CUDA_ARCHITECTURES})
  if(failed OR known MATCHES "sm_${arch}[ \n]")
    list(APPEND compiled ${arch})
  else()
    list(APPEND left_out ${arch})
  endif()
endforeach()
set(CGP_CUDA_COMPILED "${compiled}" CACHE INTERNAL "Architectures that nvcc compiles for")
if(left_out)
  list(JOIN left_out ", " left_out)
  message(STATUS "CUDA: ${CGP_NVCC} cannot compile for ${left_out}: left out")
endif()
if(NOT compiled)
  set(CUDA_MISSING "${CGP_NVCC} compiles for none of CGP_CUDA_ARCHITECTURES")
  return()
endif()

# nvcc refuses host compilers that are newer than it is.
list(GET compiled 0 arch)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/cuda_probe.cu "")
execute_process(COMMAND ${CGP_NVCC} -x cu -std=c++17 -E -arch=compute_${arch} -o ${CMAKE_CURRENT_BINARY_DIR}/cuda_probe.ii ${CMAKE_CURRENT_BINARY_DIR}/cuda_probe.cu
                ERROR_VARIABLE error RESULT_VARIABLE failed)
if(failed)
  string(REGEX MATCH "[^\n]*(error|fatal)[^\n]*" error "${error}")
  string(REPLACE "\"" "'" error "${error}")
  set(CUDA_MISSING "${CGP_NVCC} could not compile an empty file: ${error}")
endif()
