#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_makefile.sh SOURCE_DIR BUILD_DIR -- test make install, uninstall and demo, with spaces in
# PREFIX, DESTDIR, DATA and DEMO_RUN.
set -u
source "$(dirname "$0")/support.sh"
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
unset PREFIX DESTDIR DATA DEMO_RUN DEMO_TEXTS MAKEFLAGS MAKELEVEL

# The build under test is complete, so `make` must get the same options; otherwise it would build
# everything again.
werror=$(sed -n 's/^CGP_WERROR:BOOL=//p' "$build_dir/CMakeCache.txt")
run_make() { make -s -C "$source_dir" -o all BUILD="$build_dir" WERROR="$werror" "$@"; }
files() { (cd "$1" && find . \( -type f -o -type l \) | LC_ALL=C sort); }
weights() { sed -n 's/.*weights_sha256 *//p' "$work/$1"; }

# `make` must not need packages that only the tests need.
mkdir "$work/bin"
printf '#!/bin/sh\ncase "$*" in *cmocka*|*jq*) exit 1;; esac\necho "install ok installed"\n' >"$work/bin/dpkg-query"
chmod +x "$work/bin/dpkg-query"
check "no package of the tests is asked for" env PATH="$work/bin:$PATH" "$source_dir/tools/deps.sh" --check
configure() { cmake -S "$source_dir" -B "$work/bare" -G Ninja -DCMOCKA_LIBRARY= "$@" >"$work/configured" 2>&1; }
check "without cmocka CMake leaves the tests out" configure
check "and says so" grep -q 'The tests are left out: cmocka is missing' "$work/configured"
check "there are none" test ! -e "$work/bare/tests/CTestTestfile.cmake"
check "asked for, they are refused" eval '! configure -DCGP_TESTS=ON'

check "install with PREFIX" run_make install PREFIX="$work/a prefix"
run_make install PREFIX="/opt/a prefix" DESTDIR="$work/a stage" >"$work/said"
check "install with DESTDIR" test $? -eq 0
check "it says where" grep -qxF "installed in $work/a stage/opt/a prefix" "$work/said"
check "the same files" diff <(files "$work/a prefix") <(files "$work/a stage/opt/a prefix")
check "nothing beside them" test "$(cd "$work/a stage" && find . -maxdepth 2 | LC_ALL=C sort | tr '\n' ' ')" = ". ./opt ./opt/a prefix "
check "the program runs there" "$work/a prefix/bin/cgpipe" --version
check "a relative PREFIX is below the source directory" \
    run_make install PREFIX="$(realpath --relative-to="$source_dir" "$work")/a relative/../prefix"
check "with the same files" diff <(files "$work/a prefix") <(files "$work/prefix")

lib=$(dirname "$(find "$work/a prefix" -name libcgpipe.a)")
build_with() { # uses the flags of pkg-config, in which spaces are escaped
    eval "cc '$source_dir/examples/hello_pipeline.c' -o '$work/hello' $(PKG_CONFIG_PATH="$lib/pkgconfig" pkg-config --cflags --libs cgpipe) -lm"
}
check "pkg-config's flags lead there" build_with

touch "$work/a prefix/lib/theirs" "$work/a stage/opt/a prefix/theirs"
check "uninstall with PREFIX" run_make uninstall PREFIX="$work/a prefix"
check "uninstall with DESTDIR" run_make uninstall PREFIX="/opt/a prefix" DESTDIR="$work/a stage"
check "what others have there stays" test "$(files "$work/a prefix")$(files "$work/a stage")" = "./lib/theirs./opt/a prefix/theirs"

# A training on one file gives the same result as a training on a list of that file's parts. The
# demo's default data are a list of parts, so the output must equal the demo's default output.
text() { find "$source_dir/docs" -maxdepth 1 -name '*.md' | LC_ALL=C sort; }
text | tr '\n' '\0' | xargs -0 cat >"$work/a text.txt"
demo() { # demo NAME VARIABLE...
    run_make demo DEMO_STEPS=2 DEMO_RUN="$work/run of $1" "${@:2}" >"$work/$1" 2>&1
}
demo one DATA="$work/a text.txt"
check "demo on DATA" grep -qE '^weights_sha256 +[0-9a-f]{64}$' "$work/one"
demo list DEMO_TEXTS="$(text | tr '\n' ' ')"
check "demo on DEMO_TEXTS" grep -qE '^weights_sha256 +[0-9a-f]{64}$' "$work/list"
check "the same text gives the same weights" test "$(weights one)" = "$(weights list)"
check "the run lies in DEMO_RUN" test -f "$work/run of one/run.json"
mkdir "$work/tree" && touch "$work/tree/x;touch P;.md" "$work/tree/\$(touch Q).h" "$work/tree/good.md" # names must not be run
(cd "$work/tree" && make -n -f "$source_dir/Makefile" -o deps MAKE=: demo) >"$work/said" 2>&1
check "a file in the tree is a word of the command" grep -q -- '--data ./good.md$' "$work/said"
check "a name with other characters is none" eval '! grep -q touch "$work/said"'
demo default
check "demo by default" grep -qE '^weights_sha256 +[0-9a-f]{64}$' "$work/default"
finish
