#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_toolkit.sh SOURCE_DIR -- run cmake/cuda_toolkit.cmake with fake CUDA toolkits.
# Architectures that nvcc does not support are omitted. Headers and runtime library are taken from
# nvcc's toolkit. If a toolkit cannot build the plug-in, the message names the toolkit.
set -u
source_dir=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# make_toolkit NAME RELEASE CUDART_VERSION CODES: make a toolkit in its own directory. The nvcc of
# the toolkit compiles nothing, but its option -E fails if the file NAME/refuses exists.
make_toolkit() {
    mkdir -p "$work/$1/bin" "$work/$1/include" "$work/$1/lib64"
    echo "#define CUDART_VERSION  $3" >"$work/$1/include/cuda_runtime_api.h"
    touch "$work/$1/lib64/libcudart_static.a"
    cat >"$work/$1/bin/nvcc" <<END
#!/bin/sh
case "\$*" in
--version) echo "Cuda compilation tools, release $2, V$2.1" ;;
--list-gpu-code) for code in $4; do echo sm_\$code; done; [ -n "$4" ] ;;
*-E*) [ ! -f "$work/$1/refuses" ] || { echo '#error -- unsupported GNU version! "gcc" is new' >&2; exit 1; } ;;
esac
END
    chmod +x "$work/$1/bin/nvcc"
}

mkdir "$work/project"
cat >"$work/project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.20)
project(toolkit NONE)
set(CMAKE_FIND_LIBRARY_PREFIXES lib)
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
include("$source_dir/cmake/cuda_toolkit.cmake")
message(STATUS "found: \${CGP_CUDA_COMPILED} | \${CGP_CUDA_INCLUDE} | \${CGP_CUDART} | \${CUDA_MISSING}")
END

# says NAME TOOLKIT PATTERN OPTIONS...: configure with a toolkit; the output must match PATTERN.
says() {
    rm -rf "$work/build"
    # $work/system is a second toolkit, as if found on the system's paths.
    cmake -S "$work/project" -B "$work/build" -DCMAKE_PREFIX_PATH="$work/system" -DCGP_NVCC="$work/$2/bin/nvcc" "${@:4}" >"$work/out" 2>&1
    if tr '\n' ' ' <"$work/out" | grep -qE -- "$3"; then echo "ok - $1"; else
        echo "not ok - $1: no $3 in:"
        cat "$work/out"
        failed=1
    fi
}

make_toolkit system 13.0 13000 "80 90 100"
make_toolkit old 12.0 12000 "70 80 86 90"
make_toolkit ancient 9.0 9000 "60 70"
make_toolkit silent 11.0 11000 ""
make_toolkit mixed 12.4 12040 "80 90"
echo "#define CUDART_VERSION 13000" >"$work/mixed/include/cuda_runtime_api.h"
make_toolkit refusing 11.8 11080 "80 90"
touch "$work/refusing/refuses"
make_toolkit bare 12.0 12000 "80"
rm "$work/bare/lib64/libcudart_static.a"

says "an architecture that nvcc does not know is left out, with a line" old "nvcc cannot compile for 100: left out"
says "the others stay, with the toolkit's own headers and runtime" old \
    "found: 80;90 \| $work/old/include \| $work/old/lib64/libcudart_static.a \|  "
says "given architectures too" old "cannot compile for 120: left out .*found: 86 " "-DCGP_CUDA_ARCHITECTURES=86;120"
says "the name of an architecture is compared whole" old "compiles for none" "-DCGP_CUDA_ARCHITECTURES=8"
says "none that nvcc knows: no plug-in" ancient "\| $work/ancient/bin/nvcc compiles for none of CGP_CUDA_ARCHITECTURES"
says "an nvcc that lists none is asked for all" silent "found: 80;90;100 .*\|  "
says "headers of another version are refused" mixed \
    "CUDA: $work/mixed/bin/nvcc +has version +12040, +but +$work/mixed/include +has +13000: +no +plug-in +\(set CGP_NVCC"
says "an nvcc that refuses the host compiler: no plug-in" refusing "nvcc could not compile an empty file: #error -- unsupported GNU version! 'gcc' is new"
says "an nvcc without its runtime: no plug-in" bare "\| $work/bare/bin/nvcc had no cuda_runtime_api.h or no libcudart_static.a"
exit $failed
