# SPDX-License-Identifier: Apache-2.0
# What `make install` installs. All paths in it are relative, so that an installed folder can be moved:
#
#     bin/cgpipe                              finds ../lib/libcgpipe.so by itself
#     lib/libcgpipe.so -> .so.0.1 -> .so.0.1.0        lib/libcgpipe.a
#     lib/pkgconfig/cgpipe.pc                 lib/cmake/cgpipe/cgpipeConfig.cmake
#     include/cgpipe/                         share/man/man1/cgpipe*.1
#     share/doc/cgpipe/examples/
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

file(RELATIVE_PATH CGP_LIB_FROM_BIN ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_target_properties(cgpipe_program PROPERTIES INSTALL_RPATH "\$ORIGIN/${CGP_LIB_FROM_BIN}")
install(TARGETS cgpipe_program)
install(TARGETS cgpipe EXPORT cgpipe-shared INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS cgpipe_static EXPORT cgpipe-static INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY include/cgpipe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(DIRECTORY ${CMAKE_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# CMake's package. While the major version is 0, a minor one may change what programs were written for.
set(CGP_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/cgpipe)
install(EXPORT cgpipe-shared NAMESPACE cgpipe:: DESTINATION ${CGP_CMAKE_DIR})
install(EXPORT cgpipe-static NAMESPACE cgpipe:: DESTINATION ${CGP_CMAKE_DIR})
configure_package_config_file(cmake/cgpipeConfig.cmake.in package/cgpipeConfig.cmake INSTALL_DESTINATION ${CGP_CMAKE_DIR})
write_basic_package_version_file(package/cgpipeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/package/cgpipeConfig.cmake ${CMAKE_BINARY_DIR}/package/cgpipeConfigVersion.cmake
        DESTINATION ${CGP_CMAKE_DIR})

# pkg-config's file. What only the static library needs is for `pkg-config --static`: each once, behind all that need it.
file(RELATIVE_PATH CGP_UP_FROM_PC ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" CGP_UP_FROM_PC ${CGP_UP_FROM_PC})
set(CGP_STATIC_LIBS ${JANSSON_STATIC_LDFLAGS} ${CRYPTO_STATIC_LDFLAGS} ${JPEG_STATIC_LDFLAGS} ${PNG_STATIC_LDFLAGS}
                    ${PCRE2_STATIC_LDFLAGS} -lgomp -lm -pthread)
foreach(folder ${CMAKE_C_IMPLICIT_LINK_DIRECTORIES}) # every linker looks there
  list(REMOVE_ITEM CGP_STATIC_LIBS -L${folder})
endforeach()
list(REVERSE CGP_STATIC_LIBS)
list(REMOVE_DUPLICATES CGP_STATIC_LIBS)
list(REVERSE CGP_STATIC_LIBS)
list(JOIN CGP_STATIC_LIBS " " CGP_STATIC_LIBS)
configure_file(cmake/cgpipe.pc.in package/cgpipe.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/package/cgpipe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
