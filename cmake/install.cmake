# SPDX-License-Identifier: Apache-2.0
# What `make install` installs. All paths in it are relative, so that an installed directory can be moved:
#
#     bin/cgpipe                              finds ../lib/libcgpipe.so by itself
#     lib/libcgpipe.so -> .so.0.1 -> .so.0.1.0        lib/libcgpipe.a
#     lib/pkgconfig/cgpipe.pc                 lib/cmake/cgpipe/cgpipeConfig.cmake
#     include/cgpipe/                         share/man/man1/cgpipe*.1
#     share/doc/cgpipe/examples/
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The program is linked once more, with the path that it has there. Otherwise CMake would keep room for that path in the
# program of the build, by an empty element, and the loader reads one as the current directory.
file(RELATIVE_PATH CGP_LIB_FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
add_executable(cgpipe_installed cli/main.c)
target_link_libraries(cgpipe_installed PRIVATE cgpipe_cli)
set_target_properties(cgpipe_installed PROPERTIES
  OUTPUT_NAME cgpipe RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/installed
  INSTALL_RPATH "\$ORIGIN/${CGP_LIB_FROM_BIN}" BUILD_WITH_INSTALL_RPATH ON)
install(TARGETS cgpipe_installed)
install(TARGETS cgpipe EXPORT cgpipe-shared INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS cgpipe_static EXPORT cgpipe-static INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/cgpipe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# CMake's package. While the major version is 0, a minor one may change what programs were written for.
set(CGP_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cgpipe)
install(EXPORT cgpipe-shared NAMESPACE cgpipe:: DESTINATION ${CGP_CMAKE_DIR})
install(EXPORT cgpipe-static NAMESPACE cgpipe:: DESTINATION ${CGP_CMAKE_DIR})
configure_package_config_file(cmake/cgpipeConfig.cmake.in package/cgpipeConfig.cmake INSTALL_DESTINATION ${CGP_CMAKE_DIR})
write_basic_package_version_file(package/cgpipeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/cgpipeConfig.cmake ${PROJECT_BINARY_DIR}/package/cgpipeConfigVersion.cmake
        DESTINATION ${CGP_CMAKE_DIR})

# pkg-config's file. What only the static library needs is for `pkg-config --static`: each once, behind all that need it.
file(RELATIVE_PATH CGP_UP_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" CGP_UP_FROM_PC ${CGP_UP_FROM_PC})
set(CGP_STATIC_LIBS ${LIBRARY_STATIC_FLAGS} ${OPENMP_LIBRARY} -lm -pthread)
foreach(directory ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES}) # every linker looks there
  list(REMOVE_ITEM CGP_STATIC_LIBS -L${directory})
endforeach()
list(REVERSE CGP_STATIC_LIBS)
list(REMOVE_DUPLICATES CGP_STATIC_LIBS)
list(REVERSE CGP_STATIC_LIBS)
list(JOIN CGP_STATIC_LIBS " " CGP_STATIC_LIBS)
configure_file(cmake/cgpipe.pc.in package/cgpipe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/cgpipe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
