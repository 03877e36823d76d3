# SPDX-License-Identifier: Apache-2.0
# `make install` installs these files. All paths in them are relative, so that an installed
# directory can be moved:
#
#     bin/cgpipe                              finds ../lib/libcgpipe.so by itself
#     lib/libcgpipe.so -> .so.0.1 -> .so.0.1.0        lib/libcgpipe.a
#     lib/libcgpipe_data.so, .a               likewise; not if CGP_DATA is OFF, nor bin/ and man1/
#     lib/cgpipe/                             plug-ins, libcgpipe-*.so: MPI's and CUDA's, if built
#     lib/pkgconfig/cgpipe.pc, cgpipe_data.pc lib/cmake/cgpipe/cgpipeConfig.cmake
#     include/cgpipe/                         share/man/man1/cgpipe*.1
#     share/cgpipe/recipes/                   share/doc/cgpipe/examples/
#     share/bash-completion/completions/cgpipe, share/zsh/site-functions/_cgpipe,
#     share/fish/vendor_completions.d/cgpipe.fish
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The installed program is linked separately, with its final path to the libraries. Otherwise CMake
# would reserve room for that path with an empty element in the build's program, and the loader
# reads an empty element as the current directory.
file(RELATIVE_PATH CGP_LIB_FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
if(CGP_DATA)
  add_executable(cgpipe_installed cli/main.c)
  target_link_libraries(cgpipe_installed PRIVATE cgpipe_cli)
  set_target_properties(cgpipe_installed PROPERTIES
    OUTPUT_NAME cgpipe RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/installed
    INSTALL_RPATH "\$ORIGIN/${CGP_LIB_FROM_BIN}" BUILD_WITH_INSTALL_RPATH ON)
  install(TARGETS cgpipe_installed)
  install(TARGETS cgpipe_data EXPORT cgpipe-shared INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS cgpipe_data_static EXPORT cgpipe-static INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(DIRECTORY recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/cgpipe)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
  install(FILES ${PROJECT_BINARY_DIR}/completion/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cgpipe)
  install(FILES ${PROJECT_BINARY_DIR}/completion/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _cgpipe)
  install(FILES ${PROJECT_BINARY_DIR}/completion/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME cgpipe.fish)
  set(DATA_HEADERS "")
else()
  set(DATA_HEADERS REGEX "/(data|images|tokenizer)\\.h$" EXCLUDE)
endif()
install(TARGETS cgpipe EXPORT cgpipe-shared INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS cgpipe_static EXPORT cgpipe-static INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET cgpipe_mpi)
  install(TARGETS cgpipe_mpi DESTINATION ${CMAKE_INSTALL_LIBDIR}/cgpipe)
endif()
if(TARGET cgpipe_cuda)
  install(TARGETS cgpipe_cuda DESTINATION ${CMAKE_INSTALL_LIBDIR}/cgpipe)
endif()
install(DIRECTORY include/cgpipe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" ${DATA_HEADERS})
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# The CMake package. While the major version is 0, a new minor version may break existing programs.
set(CGP_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cgpipe)
install(EXPORT cgpipe-shared NAMESPACE cgpipe:: DESTINATION ${CGP_CMAKE_DIR})
install(EXPORT cgpipe-static NAMESPACE cgpipe:: DESTINATION ${CGP_CMAKE_DIR})
list(JOIN CGP_DATA_PACKAGES " " CGP_DATA_PACKAGES_WORDS)
configure_package_config_file(cmake/cgpipeConfig.cmake.in package/cgpipeConfig.cmake INSTALL_DESTINATION ${CGP_CMAKE_DIR})
write_basic_package_version_file(package/cgpipeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/cgpipeConfig.cmake ${PROJECT_BINARY_DIR}/package/cgpipeConfigVersion.cmake
        DESTINATION ${CGP_CMAKE_DIR})

# The pkg-config files. `pkg-config --static` adds what only the static libraries need.
file(RELATIVE_PATH CGP_UP_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" CGP_UP_FROM_PC ${CGP_UP_FROM_PC})
function(static_libs out) # each library once, after all that need it
  foreach(directory ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES}) # linkers search these directories anyway
    list(REMOVE_ITEM ARGN -L${directory})
  endforeach()
  list(REVERSE ARGN)
  list(REMOVE_DUPLICATES ARGN)
  list(REVERSE ARGN)
  list(JOIN ARGN " " libs)
  set(${out} ${libs} PARENT_SCOPE)
endfunction()
set(CGP_DL_FLAGS ${CMAKE_DL_LIBS})
list(TRANSFORM CGP_DL_FLAGS PREPEND -l)
static_libs(CGP_STATIC_LIBS ${LIBRARY_PACKAGES_STATIC} ${OPENMP_LIBRARY} -lm ${CGP_DL_FLAGS} -pthread)
static_libs(CGP_DATA_STATIC_LIBS ${DATA_PACKAGES_STATIC} ${LIBRARY_PACKAGES_STATIC} -lm -pthread)
set(CGP_PC_FILES cgpipe)
if(CGP_DATA)
  list(APPEND CGP_PC_FILES cgpipe_data)
endif()
foreach(name ${CGP_PC_FILES})
  configure_file(cmake/${name}.pc.in package/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
