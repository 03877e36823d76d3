# SPDX-License-Identifier: Apache-2.0
# The plug-ins of src/backend/cuda: `cuda-host`, for tests, built by the host's C++ compiler, and
# `cuda`, built by nvcc. They have the same sources, but in `cuda-host` the fakes of
# tests/fakes/cuda replace CUDA.
file(GLOB CUDA_SOURCES CONFIGURE_DEPENDS src/backend/cuda/*.c)
file(GLOB CUDA_KERNELS CONFIGURE_DEPENDS src/backend/cuda/*.cu src/backend/cuda/ops/*.cu)
set(FAKE_CUDA ${PROJECT_SOURCE_DIR}/tests/fakes/cuda)
file(GLOB CUDA_HOST_SOURCES CONFIGURE_DEPENDS ${FAKE_CUDA}/*.c)
file(GLOB CUDA_HOST_KERNELS CONFIGURE_DEPENDS ${FAKE_CUDA}/*.cu)

include(CheckLanguage)
# cuda-host must give the same bits as the x86-64 kernels, and switches fibers in x86-64 assembler.
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  check_language(CXX)
endif()
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  set(OPTIMIZATION -O3)
  if(CGP_SANITIZE) # with more optimization it takes minutes to compile
    set(OPTIMIZATION -O1)
  endif()
  add_library(cuda_host_flags INTERFACE)
  target_include_directories(cuda_host_flags INTERFACE ${FAKE_CUDA} ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(cuda_host_flags INTERFACE CGP_CUDA_HOST)
  # Like nvcc, include the device's declarations first: __global__, threadIdx, __syncthreads ...
  # -UNDEBUG: CMake's release flags for C++ define NDEBUG, but tests need the asserts.
  target_compile_options(cuda_host_flags INTERFACE -ffp-contract=off
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-x c++ -std=c++17 -include ${FAKE_CUDA}/device.h ${OPTIMIZATION} -march=x86-64-v3 -fno-exceptions -fno-rtti -fvisibility=hidden -UNDEBUG -Wno-unknown-pragmas -Wno-unused-function>")
  # Build objects, because the tests link them too.
  add_library(cuda_host_objects OBJECT ${CUDA_SOURCES} ${CUDA_KERNELS} ${CUDA_HOST_SOURCES} ${CUDA_HOST_KERNELS})
  set_source_files_properties(${CUDA_KERNELS} ${CUDA_HOST_KERNELS} PROPERTIES LANGUAGE CXX)
  set_source_files_properties(${FAKE_CUDA}/switch.c PROPERTIES
                              COMPILE_OPTIONS -fcf-protection=branch) # fibers have no shadow stacks
  target_link_libraries(cuda_host_objects PRIVATE cuda_host_flags)
  add_library(cgpipe_cuda_host MODULE $<TARGET_OBJECTS:cuda_host_objects>)
  set_target_properties(cgpipe_cuda_host PROPERTIES OUTPUT_NAME cgpipe-cuda-host LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/plugins)
  file(REMOVE ${PROJECT_BINARY_DIR}/plugins/libcgpipe-cuda-host.so) # a stale plug-in would be found
  target_link_libraries(cgpipe_cuda_host PRIVATE Threads::Threads m)
  add_dependencies(cgpipe_plugins cgpipe_cuda_host)
endif()

# The plug-in `cuda`.
set(CUDA_MISSING "CGP_CUDA was off, or a sanitizer was on") # sanitizers run cuda-host instead
if(CGP_CUDA AND NOT CGP_SANITIZE)
  include(${CMAKE_CURRENT_LIST_DIR}/cuda_toolkit.cmake)
endif()
if(CUDA_MISSING STREQUAL "")
  set(GENCODE "")
  foreach(arch ${CGP_CUDA_COMPILED})
    list(APPEND GENCODE -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  set(LEAST ${CGP_CUDA_COMPILED})
  list(TRANSFORM LEAST REPLACE "[^0-9]" "")
  list(SORT LEAST COMPARE NATURAL)
  list(GET LEAST 0 LEAST)
  list(GET CGP_CUDA_COMPILED -1 arch)
  list(APPEND GENCODE -gencode arch=compute_${arch},code=compute_${arch})
  # ptxas warns of spills; with CGP_WERROR they are errors.
  set(NVCC_WERROR "")
  if(CGP_WERROR)
    set(NVCC_WERROR -Werror all-warnings)
  endif()
  set(NVCC_FLAGS -x cu -std=c++17 -O3 -DNDEBUG -fmad=false -ftz=false -prec-div=true -prec-sqrt=true ${GENCODE}
                 -Xptxas -v,-warn-spills ${NVCC_WERROR}
                 -Xcompiler -Wall,-Wextra,-fPIC,-fvisibility=hidden,-ffp-contract=off
                 -Xcompiler -fstack-protector-strong,-fcf-protection=full,-fno-exceptions
                 -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src)
  set(CUDA_OBJECTS "")
  foreach(source ${CUDA_KERNELS})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src/backend/cuda ${source})
    string(REGEX REPLACE "[/.]" "_" name ${name})
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o)
    add_custom_command(OUTPUT ${object} # ptxas's output goes to NAME.ptxas, for tests/cuda
      COMMAND ${CMAKE_COMMAND} -E make_directory cuda
      COMMAND sh -c "\"$@\" 2>cuda/${name}.ptxas || { cat cuda/${name}.ptxas >&2; exit 1; }" --
              ${CGP_NVCC} ${NVCC_FLAGS} -MD -MF ${object}.d -c -o ${object} ${source}
      DEPENDS ${source} DEPFILE ${object}.d COMMENT "nvcc ${name}" VERBATIM)
    list(APPEND CUDA_OBJECTS ${object})
  endforeach()
  add_library(cgpipe_cuda MODULE ${CUDA_SOURCES} ${CUDA_OBJECTS})
  target_include_directories(cgpipe_cuda PRIVATE include src)
  target_compile_definitions(cgpipe_cuda PRIVATE CGP_CUDA_LEAST=${LEAST})
  target_include_directories(cgpipe_cuda SYSTEM PRIVATE ${CGP_CUDA_INCLUDE})
  # cuBLASLt is loaded at run time from the system's library path; only its types come from the
  # toolkit.
  if(NOT EXISTS ${CGP_CUDA_INCLUDE}/cublasLt.h)
    message(STATUS "CUDA: no cublasLt.h: products in bf16 by own kernels")
    target_compile_definitions(cgpipe_cuda PRIVATE CGP_CUDA_NO_CUBLASLT)
  endif()
  set_target_properties(cgpipe_cuda PROPERTIES OUTPUT_NAME cgpipe-cuda LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/plugins)
  # nvcc's launch code has guarded statics. Nothing else uses the C++ library, which is therefore
  # linked statically.
  target_link_libraries(cgpipe_cuda PRIVATE ${CGP_CUDART} -Wl,-Bstatic -lstdc++ -Wl,-Bdynamic Threads::Threads ${CMAKE_DL_LIBS} rt m)
  target_link_options(cgpipe_cuda PRIVATE LINKER:--exclude-libs,ALL)
  target_link_options(cgpipe_cuda PRIVATE LINKER:-z,defs)
  add_dependencies(cgpipe_plugins cgpipe_cuda)
else()
  message(STATUS "CUDA: no plug-in: ${CUDA_MISSING}")
  string(APPEND NOT_BUILT " X(\"libcgpipe-cuda.so\", \"${CUDA_MISSING}\")")
endif()
