#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Check and measure the CUDA kernels on a machine with a GPU (docs/how-to/check-a-gpu.md). The parts
# are in tools/gpu_check/.
#
#     tools/gpu_check.sh                       all parts, or those left by an earlier call
#     tools/gpu_check.sh --pack DIR            on a machine with all libraries: pack those that the
#                                              build needs, for a machine without them
#     tools/gpu_check.sh --packed DIR          on that machine: build against the pack
#     tools/gpu_check.sh --backend cuda-host   without a GPU: try the script
#     tools/gpu_check.sh --help                the other options
#
# Needs nvcc, g++, CMake and python3. PyTorch is measured too if this python3, or PYTHON, has it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONDONTWRITEBYTECODE=1

PACKAGES="jansson libcrypto libjpeg libpng yaml-0.1"
LIBRARIES="jansson crypto jpeg png16 z yaml cmocka"
HEADERS="stdio.h stdarg.h stddef.h setjmp.h stdint.h jansson.h openssl/evp.h openssl/crypto.h jpeglib.h png.h yaml.h cmocka.h"

fail() { echo "gpu_check: $*" >&2; exit 1; }

# Pack the shared libraries, under their names for the linker and for the loader.
pack_libraries() { # DIR
    local name file soname
    for name in $LIBRARIES; do
        file=$(realpath -e "$(gcc -print-file-name="lib$name.so")" 2>/dev/null) || fail "no lib$name.so here (make deps)"
        soname=$(readelf -d "$file" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
        cp "$file" "$1/lib/$soname"
        [ "$soname" = "lib$name.so" ] || ln -sf "$soname" "$1/lib/lib$name.so"
    done
}

# Pack $HEADERS and the headers that they include, directly or not, except headers of libc and the
# compiler.
pack_headers() { # DIR
    local flags file to
    # shellcheck disable=SC2086
    flags=$(pkg-config --cflags $PACKAGES)
    for file in $HEADERS; do echo "#include <$file>"; done >"$1/all.c"
    # shellcheck disable=SC2086
    gcc $flags -M "$1/all.c" | grep -oE '/[^ ]+\.h' |
        grep -E '/(openssl/|(jansson|jpeg|jconfig|jmorecfg|jerror|png|z(lib|conf)|yaml|cmocka)[^/]*$)' | while IFS= read -r file; do
        to=${file##*/include/}
        to=$1/include/${to#"$(gcc -print-multiarch)/"}
        mkdir -p "${to%/*}"
        cp "$file" "$to"
    done
    rm "$1/all.c"
}

# Write NAME VERSION CFLAGS | LIBS for tools/gpu_check/pkg-config.sh, which replaces pkg-config.
pack_packages() { # DIR
    local name
    for name in $PACKAGES; do
        echo "$name $(pkg-config --modversion "$name") $(pkg-config --cflags "$name" | sed 's|-I/usr/include|-I@|g') | $(pkg-config --libs "$name")"
    done >"$1/packages"
    cp "$here/gpu_check/pkg-config.sh" "$1/pkg-config"
    chmod +x "$1/pkg-config"
}

pack() { # DIR [LLMC]
    local dir
    mkdir -p "$1/lib" "$1/include"
    dir=$(cd "$1" && pwd)
    pack_libraries "$dir"
    pack_headers "$dir"
    pack_packages "$dir"
    git -C "$here" rev-parse HEAD >"$dir/commit"
    if [ -n "${2-}" ]; then
        [ -f "$2/train_gpt2_fp32.cu" ] || fail "--llmc: expected a checkout of llm.c, got $2, without train_gpt2_fp32.cu"
        mkdir -p "$dir/llm.c/llmc"
        cp "$2/train_gpt2_fp32.cu" "$dir/llm.c/"
        cp "$2"/llmc/*.h "$dir/llm.c/llmc/"
        cp "$2/LICENSE" "$dir/llm.c/"
    fi
    echo "$dir: $(du -sk "$dir" | cut -f1) KiB; there, with $(getconf GNU_LIBC_VERSION) or later: tools/gpu_check.sh --packed DIR"
}

case ${1-} in
--pack)
    [ $# = 2 ] || { [ $# = 4 ] && [ "$3" = --llmc ]; } || fail "expected --pack DIR [--llmc DIR]"
    pack "$2" "${4-}"
    ;;
*) exec "${PYTHON:-python3}" "$here/gpu_check/main.py" "$@" ;;
esac
