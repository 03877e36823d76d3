# SPDX-License-Identifier: Apache-2.0
# Compile and link options of this project. They are set for this directory, so that an enclosing
# project is not affected.
if(NOT CMAKE_SYSTEM_NAME STREQUAL Linux OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64|aarch64)$"
   OR NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  math(EXPR bits "8 * ${CMAKE_SIZEOF_VOID_P}")
  message(FATAL_ERROR "cgpipe: expects Linux on x86-64 or aarch64, got ${CMAKE_SYSTEM_NAME} on ${CMAKE_SYSTEM_PROCESSOR}, ${bits} bits "
                      "(the CPU kernels are written for SSE2, AVX2, AVX-512 and NEON)")
endif()
if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
  message(FATAL_ERROR "cgpipe: expects GCC 12 or later, got ${CMAKE_C_COMPILER_VERSION} "
                      "(for __builtin_shufflevector; another compiler: -DCMAKE_C_COMPILER=clang)")
endif()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON) # C11 with POSIX, pthreads and vector types
set(CMAKE_C_VISIBILITY_PRESET hidden)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(CGP_SANITIZE) # sanitizers' reports need line numbers only
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g1")
else()
  set(CMAKE_C_FLAGS_RELEASE "-O2 -g")
endif()

add_compile_options(-Wall -Wextra -Wvla -Wshadow -Wpointer-arith
                    "$<$<COMPILE_LANGUAGE:C>:SHELL:-Wstrict-prototypes -Wmissing-prototypes>")
if(CGP_WERROR)
  add_compile_options(-Werror)
endif()

# Build the same bytes in any source and build directory. Compilers run in the build directory,
# which may be a larger project's.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=./build
                    -ffile-prefix-map=${PROJECT_BINARY_DIR}=./build)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)

# Hardening; tests/install/test_elf.sh checks the result. Programs are position-independent, like
# the library.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
add_compile_options(-fstack-protector-strong)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
  add_compile_options(-mbranch-protection=standard)
else()
  add_compile_options(-fcf-protection=full)
endif()
add_link_options(LINKER:-z,relro,-z,now,-z,noexecstack)
set(KERNEL_FORTIFY "")
if(CGP_SANITIZE)
  add_compile_options(-fsanitize=${CGP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${CGP_SANITIZE})
else() # a sanitizer checks more than _FORTIFY_SOURCE, which needs an optimizing compiler
  add_compile_options("$<$<NOT:$<CONFIG:Debug>>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3>")
  # Kernels check sizes known at compile time; checks at run time cost one instruction in fifty.
  set(KERNEL_FORTIFY "$<$<NOT:$<CONFIG:Debug>>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2>")
endif()

# The OpenMP library of the compiler's -fopenmp. clang may come without such a library; then GCC's
# library works too.
set(CGP_OPENMP "" CACHE STRING "Library of OpenMP: gomp (GCC's) or omp (LLVM's); empty: what the compiler has")
set(OPENMP_LIBRARY -lgomp)
if(CGP_OPENMP STREQUAL omp OR NOT (CGP_OPENMP OR CMAKE_C_COMPILER_ID STREQUAL GNU))
  find_package(OpenMP QUIET COMPONENTS C)
  if(OpenMP_omp_LIBRARY) # in the compiler's directory; the loader finds it without a path
    get_filename_component(directory ${OpenMP_omp_LIBRARY} DIRECTORY)
    set(OPENMP_LIBRARY -L${directory} -lomp)
  elseif(CGP_OPENMP)
    message(FATAL_ERROR "cgpipe: CGP_OPENMP=omp expects LLVM's libomp and its header, found none with "
                        "${CMAKE_C_COMPILER} (Debian: libomp-dev; or CGP_OPENMP=gomp)")
  endif()
elseif(CGP_OPENMP AND NOT CGP_OPENMP STREQUAL gomp)
  message(FATAL_ERROR "cgpipe: CGP_OPENMP expects gomp or omp, got ${CGP_OPENMP}")
endif()
message(STATUS "OpenMP: ${OPENMP_LIBRARY}")
