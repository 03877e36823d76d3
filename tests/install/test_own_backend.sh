#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_own_backend.sh SOURCE_DIR BUILD_DIR -- build examples/own_backend against the installed
# headers alone. Training with the plug-in's own kernels gives the results of `ref`. The training
# program is linked with the shared library, and then with the static library. The plug-in is found
# in CGP_PLUGIN_PATH, next to the program, and in the directory of an installation that was moved.
set -u
source "$(dirname "$0")/support.sh"
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
unset PKG_CONFIG_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH DESTDIR CGP_PLUGIN_PATH

cmake --install "$build_dir" --prefix "$work/first" >"$work/out" 2>&1
check "install" test $? -eq 0
rm -f "$build_dir/install_manifest.txt"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libcgpipe.so)")
rm -f "$lib/cgpipe/libcgpipe-cuda.so" # exists only if built with nvcc
export PKG_CONFIG_PATH=$lib/pkgconfig

example=$(find "$prefix" -path '*/examples/own_backend' -type d)
cp -r "$example" "$work/own"
build_them() {
    cmake -S "$work/own" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="-Wall -Wextra -Werror" &&
        cmake --build "$work/build"
}
check "the backend has fewer than 250 lines" test "$(wc -l <"$example/toy.c")" -lt 250
check "the example builds against the installed headers" build_them
check "the plug-in is not linked with the library" test -z "$(readelf -d "$work/build/libcgpipe-toy.so" | grep NEEDED | grep cgpipe)"
check "it looks up no name of cgpipe" test -z "$(nm -u "$work/build/libcgpipe-toy.so" | grep cgp_)"

# trained WORDS... : check that the loss falls, and that it equals the loss on `ref` except for
# rounding. (The example backend `toy` sums in double, in another order.)
trained() {
    "$@" >"$work/said" 2>&1 || { cat "$work/said"; return 1; }
    cat "$work/said"
    awk '{
        from = $4; to = $6; away = $NF
        exit !(from > 2 && to < 1 && away < 1e-5 && away == away + 0)
    }' FS='[ ,]+' "$work/said"
}
check "two stages on it train as ref does" trained env CGP_PLUGIN_PATH="$work/build" "$work/build/train"
check "beside a cpu device, too" trained env CGP_PLUGIN_PATH="$work/build" "$work/build/train" cpu,toy
check "without the plug-in there is no such device" sh -c '! "$1" 2>"$2" && grep -q "expected cpu or ref, got \"toy\"" "$2"' sh \
    "$work/build/train" "$work/said"
(cd "$work/build" && ./train) >"$work/said" 2>&1
check "nor from the current directory" test $? -eq 1

# Check that a program linked with the static library exports none of the library's functions.
link_static() {
    # shellcheck disable=SC2046
    cc "$work/own/train.c" $(pkg-config --static --cflags --libs cgpipe | sed 's/-lcgpipe/-l:libcgpipe.a/') -lm -o "$work/static"
}
check "a program links the static library" link_static
check "it exports nothing" test -z "$(nm -D --defined-only "$work/static" | grep cgp_)"
check "the same plug-in serves it" trained env CGP_PLUGIN_PATH="$work/build" "$work/static"
mkdir "$work/plugins" && cp "$work/build/libcgpipe-toy.so" "$work/plugins/"
check "beside the program it needs no variable" trained "$work/static"
if [ "$(id -u)" = 0 ] && cp "$(command -v id)" "$work/id" && chmod 711 "$work" && chown 1 "$work/id" "$work/static" &&
    chmod u+s "$work/id" "$work/static" && [ "$("$work/id" -u)" = 1 ]; then
    check "a set-user-ID program opens none" sh -c '! CGP_PLUGIN_PATH=$1/plugins "$1/static" 2>"$2" && grep -q "got \"toy\"; a set-user-ID program opens no plug-ins$" "$2"' \
        sh "$work" "$work/said"
else
    echo "skip: set-user-ID programs (no root, or a file system without them)"
fi
rm -r "$work/plugins"

# The plan refuses ops that `toy` lacks, an ordinal that does not exist, and bf16.
refused() { # PATTERN WORDS...
    local pattern=$1
    shift
    CGP_PLUGIN_PATH=$work/build "$prefix/bin/cgpipe" "$@" >"$work/said" 2>&1
    [ $? -ne 0 ] && grep -q "$pattern" "$work/said" || { cat "$work/said"; return 1; }
}
check "an op that it lacks is refused with layer and op" \
    refused '^cgpipe: layer .*, op .*, device toy:0: toy: has linear, relu and cross_entropy in f32 only (put that layer on a cpu device)$' \
    plan gpt2:layers=1,width=32,heads=2,seq=16,vocab=16 --devices toy --batch 4
check "an ordinal that is not there is refused" sh -c '! CGP_PLUGIN_PATH=$1 "$1/train" toy:0,toy:1 2>"$2" && grep -q "expected ordinal 0, got 1" "$2"' \
    sh "$work/build" "$work/said"

# An installed plug-in is found next to the library, even if the installation was moved.
mkdir -p "$lib/cgpipe" && cp "$work/build/libcgpipe-toy.so" "$lib/cgpipe/"
check "installed, it needs no variable" trained "$work/build/train"

# The loader may have found the library by a relative path. In this case too, plug-ins beside the
# library must be found after the program has changed its directory.
cat >"$work/moves.c" <<END
#include <cgpipe/devices.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc != 2 || chdir(argv[1]) != 0) return 1;
    for (int i = 0; cgp_plugin_info_at(i).path; i++)
        puts(cgp_plugin_info_at(i).path);
    return 0;
}
END
mkdir -p "$work/other/lib/cgpipe"
cp "$lib"/libcgpipe.so* "$work/other/lib/"
cp "$work/build/libcgpipe-toy.so" "$work/other/lib/cgpipe/libcgpipe-evil.so"
ln -sT "$lib" "$work/lib"
# shellcheck disable=SC2046
check "a program that changes its directory builds" cc "$work/moves.c" $(pkg-config --cflags --libs cgpipe) -o "$work/moves"
opened() { # LIBRARY_PATH DIRECTORY: print the plug-ins that `moves` opens after a chdir
    (cd "$work" && LD_LIBRARY_PATH=$1 ./moves "$2") >"$work/said" 2>&1 || return 1
    cat "$work/said"
}
check "the library's directory is absolute" test "$(opened "$work/lib" "$work/other" | grep -v libcgpipe-mpi)" = "$lib/cgpipe/libcgpipe-toy.so"
check "from a relative one nothing of the new directory is opened" \
    sh -c 'cd "$1" && LD_LIBRARY_PATH=lib ./moves other >opened && ! grep evil opened' sh "$work"
finish
