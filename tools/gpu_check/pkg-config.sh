#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A replacement for pkg-config, for CMake. It reads the file `packages` beside it: NAME VERSION
# CFLAGS | LIBS. Directories are the pack's.
here=$(cd "$(dirname "$0")" && pwd)
names="" ask=""
for word; do
    case $word in
    --version) echo 1.8.1; exit 0 ;;
    --exists | --modversion | --cflags* | --libs*) ask=$word ;;
    -*) ;;
    *) names="$names $word" ;;
    esac
done
for name in $names; do
    line=$(sed -n "s/^$name //p" "$here/packages")
    [ -n "$line" ] || { echo "no package $name in $here/packages" >&2; exit 1; }
    rest=${line#* }
    case $ask in
    --modversion) echo "${line%% *}" ;;
    --cflags | --cflags-only-I) echo "-I$here/include ${rest%%|*}" | sed "s|-I@|-I$here/include|g" ;;
    --libs) echo "-L$here/lib ${rest#*|}" ;;
    --libs-only-L) echo "-L$here/lib" ;;
    --libs-only-l) echo "${rest#*|}" ;;
    esac
done
