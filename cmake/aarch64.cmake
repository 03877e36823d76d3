# SPDX-License-Identifier: Apache-2.0
# Toolchain file to build cgpipe for aarch64 with Debian's cross-compiler and the packages in
# CGP_SYSROOT. Programs run under qemu-user. tools/aarch64.sh makes the sysroot and calls CMake with
# it and with this file.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES CGP_SYSROOT)
set(CMAKE_SYSROOT ${CGP_SYSROOT})
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-L;${CGP_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CGP_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CGP_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CGP_SYSROOT}/usr/share/pkgconfig)
