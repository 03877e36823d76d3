#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_install.sh SOURCE_DIR BUILD_DIR -- check what `make install` installs. The files contain no
# path of the source or build directory, and the library exports the right names. The examples build
# against the installed library in C and C++, with pkg-config and with CMake.
set -u
source "$(dirname "$0")/support.sh"
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
lists=$source_dir/tests/repo
version=$(sed -n 's/^#define CGP_VERSION "\(.*\)"/\1/p' "$source_dir/include/cgpipe/base.h")
minor=${version%.*}
unset PKG_CONFIG_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH DESTDIR

# --- two installations: one with DESTDIR; one without, which is then moved ---

# Install the build under test without building anything. Then remove the files in which CMake
# records the installation.
install_into() { # install_into DESTDIR PREFIX
    DESTDIR=$1 cmake --install "$build_dir" --prefix "$2"
    local code=$?
    rm -f "$build_dir/install_manifest.txt"
    return $code
}
files() { (cd "$1" && find . \( -type f -o -type l \) | LC_ALL=C sort); }

check "install with DESTDIR" install_into "$work/stage" /usr/local
check "install without" install_into "" "$work/first"
check "the files are the same" diff <(files "$work/stage/usr/local") <(files "$work/first")
check "with DESTDIR nothing is beside the prefix" test "$(ls "$work/stage")$(ls "$work/stage/usr")" = usrlocal
mv "$work/first" "$work/prefix"
prefix=$work/prefix
lib=$(dirname "$(find "$prefix" -name libcgpipe.so)")

# --- files ---

expect_files() {
    local file missing=0
    for file in bin/cgpipe include/cgpipe/cgpipe.h include/cgpipe/models/gpt2.h share/man/man1/cgpipe.1 \
        share/doc/cgpipe/LICENSE share/doc/cgpipe/examples/hello_pipeline.c share/doc/cgpipe/examples/custom_schedule.csv \
        share/bash-completion/completions/cgpipe share/zsh/site-functions/_cgpipe share/fish/vendor_completions.d/cgpipe.fish; do
        [ -s "$prefix/$file" ] || { echo "missing: $file"; missing=1; }
    done
    for file in libcgpipe.so.$version libcgpipe.so.$minor libcgpipe.a pkgconfig/cgpipe.pc libcgpipe_data.so.$version libcgpipe_data.a \
        pkgconfig/cgpipe_data.pc cmake/cgpipe/cgpipeConfig.cmake; do
        [ -s "$lib/$file" ] || { echo "missing: $file"; missing=1; }
    done
    return $missing
}
check "all files are there" expect_files
check "all recipes are there" diff <(files "$source_dir/recipes") <(files "$prefix/share/cgpipe/recipes")
check "all headers are there" diff <(files "$source_dir/include/cgpipe") <(files "$prefix/include/cgpipe")

dynamic() { readelf -d "$1" | sed -n "s/.*($2).*\[\(.*\)\]/\1/p"; }
check "soname" test "$(dynamic "$lib/libcgpipe.so" SONAME)" = "libcgpipe.so.$minor"
check "the library looks nowhere of its own" test -z "$(dynamic "$lib/libcgpipe.so" RUNPATH)$(dynamic "$lib/libcgpipe.so" RPATH)"
check "the program looks beside itself" grep -qx '\$ORIGIN/\.\./lib.*' <(dynamic "$prefix/bin/cgpipe" RUNPATH)
check "its recipes are there for it" "$prefix/bin/cgpipe" plan --config "$prefix/share/cgpipe/recipes/resnet20-cifar10.yaml" --quiet
check "the program runs where it was moved to" test "$("$prefix/bin/cgpipe" --version)" = "cgpipe $version"

exports() { nm "$@" | awk '$2 ~ /^[TDBRVW]$/ {print $3}' | LC_ALL=C sort -u; }
for list in exports:libcgpipe exports_data:libcgpipe_data; do
    names=$lists/${list%:*}.txt library=$lib/${list#*:}
    check "$library.so exports what the list says" diff "$names" <(exports -D --defined-only "$library.so")
    check "$library.a has them too" test -z "$(comm -23 "$names" <(exports --defined-only "$library.a"))"
    check "all names of $library.a begin with cgp_" test -z "$(exports --defined-only "$library.a" | grep -v '^cgp_')"
done
check "the core needs libc, libm, OpenMP, jansson and libcrypto alone" \
    test -z "$(dynamic "$lib/libcgpipe.so" NEEDED | grep -vE '^(libc|libm|libg?omp|libjansson|libcrypto|ld-linux-x86-64|libpthread)\.so')"

check "of libraries and program, the program alone needs libyaml" test "$(dynamic "$prefix/bin/cgpipe" NEEDED | grep -c yaml)" = 1 -a \
    "$(dynamic "$lib/libcgpipe_data.so" NEEDED | grep -c yaml)" = 0

strange() { # print the text files that contain a directory of this machine
    grep -rIlF -e "$source_dir" -e "$build_dir" -e "$work" "$prefix"
}
check "no text names the source, the build or the prefix" test -z "$(strange)"

# --- manual pages ---

# Print the words of the OPTIONS section of a manual page, without roff commands. The words must
# equal those of --help.
words_of_page() {
    sed -n '/^\.SH OPTIONS/,/^\.SH EXAMPLE/p' "$1" | grep -v '^\.' |
        sed 's/\\f[BIR]//g; s/\\&//g; s/\\-/-/g; s/\\(aq/'\''/g; s/\\(ga/`/g; s/\\(ha/^/g; s/\\(ti/~/g; s/\\e/\\/g' |
        tr -s ' \n' '\n'
}
words_of_help() { "$prefix/bin/cgpipe" help "$1" | sed -n '/^  --/,/^$/p' | tr -s ' \n' '\n' | grep .; }
commands=$("$prefix/bin/cgpipe" help | sed -n 's/^  cgpipe \([a-z]*\) .*/\1/p' | grep -vxE 'help|completion')
for command in $commands; do
    page=$prefix/share/man/man1/cgpipe-$command.1
    check "cgpipe-$command.1 has the options that help has" diff <(words_of_help "$command") <(words_of_page "$page")
    check "cgpipe-$command.1 has the groups that help has" diff <("$prefix/bin/cgpipe" help "$command" | sed -n 's/^\([a-z ]*\):$/\1/p') \
        <(sed -n 's/^\.SS //p' "$page")
    check "cgpipe.1 names cgpipe-$command" grep -qF "cgpipe\\-$command" "$prefix/share/man/man1/cgpipe.1"
done
if command -v groff >/dev/null; then
    check "groff finds nothing wrong in the pages" test -z "$(groff -man -ww -b -z "$prefix"/share/man/man1/*.1 2>&1)"
else
    echo "skip: the pages' roff (no groff)"
fi

# --- examples, from their own copy ---

cp -r "$prefix/share/doc/cgpipe/examples" "$work/examples"
cd "$work/examples" || exit 1
names=$(basename -s .c -- *.c | grep -v '^mpi_ranks$') # test_mpi_example tests mpi_ranks
export PKG_CONFIG_PATH=$lib/pkgconfig
flags="-std=c11 -pedantic-errors -Wall -Wextra -Werror"

compile_all() { # compile_all PREFIX COMPILER_FLAGS... -- LIBRARIES...
    local to=$1 name options=()
    shift
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    for name in $names; do
        # shellcheck disable=SC2086,SC2046
        cc $flags "${options[@]}" $(pkg-config --cflags cgpipe_data) "$name.c" -o "$to$name" "$@" -lm || return 1
    done
}

check "pkg-config knows the version" test "$(pkg-config --modversion cgpipe)" = "$version"
# shellcheck disable=SC2046
check "C by pkg-config, shared" compile_all "$work/shared_" -- $(pkg-config --libs cgpipe_data)
export LD_LIBRARY_PATH=$lib
run_examples "$work/examples" "$work/shared_" "C by pkg-config, shared"
unset LD_LIBRARY_PATH

# LLVM's OpenMP may exist only as a shared library.
omp=$(pkg-config --static --libs cgpipe_data | tr ' ' '\n' | sed -n 's/^-L\(.*\)/\1/p' | while IFS= read -r directory; do find "$directory" -name libomp.so; done)
if [ -n "$omp" ] && [ ! -e "${omp%.so}.a" ]; then
    echo "skip: static programs (libomp has no static library)"
else
    # shellcheck disable=SC2046
    check "C by pkg-config, static" compile_all "$work/static_" -static -- $(pkg-config --static --libs cgpipe_data)
    run_examples "$work/examples" "$work/static_" "C by pkg-config, static"
    check "static programs need no library" test -z "$(dynamic "$work/static_resume" NEEDED)"
fi

cxx=C
if command -v g++ >/dev/null; then
    cxx="C CXX"
    cp hello_pipeline.c hello_in_cxx.cc
else
    echo "skip: C++ (no g++)"
fi
cat >CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(examples LANGUAGES $cxx)
find_package(cgpipe $minor REQUIRED COMPONENTS static)
foreach(name $(echo $names))
  add_executable(cmake_\${name} \${name}.c)
  target_link_libraries(cmake_\${name} PRIVATE cgpipe::cgpipe_data m)
endforeach()
add_executable(with_archive resume.c)
target_link_libraries(with_archive PRIVATE cgpipe::cgpipe_data_static)
if(CMAKE_CXX_COMPILER)
  add_executable(hello_in_cxx hello_in_cxx.cc)
  target_link_libraries(hello_in_cxx PRIVATE cgpipe::cgpipe)
endif()
find_package(cgpipe 99 QUIET)
if(cgpipe_FOUND)
  message(FATAL_ERROR "found as version 99")
endif()
END
configure() { cmake -S . -B "$work/cmake" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"; }
check "CMake finds the package" configure
check "C and C++ by CMake" cmake --build "$work/cmake"
run_examples "$work/examples" "$work/cmake/cmake_" "C by CMake"
run_example "C by CMake, static" "$work/cmake/with_archive" '^weights, resumed' "$work/run"
check "the static library is inside" test -z "$(dynamic "$work/cmake/with_archive" NEEDED | grep cgpipe)"
[ "$cxx" = C ] || run_example "C++ by CMake" "$work/cmake/hello_in_cxx" '^step 300  loss 0\.[0-4]'

# --- uninstall ---

check "uninstall" "$source_dir/tools/uninstall.sh" "$build_dir" "$prefix"
check "uninstall leaves no file" test -z "$(files "$prefix")"
check "uninstall leaves no directory of ours" test -z "$(find "$prefix" -name '*cgpipe*')"
finish
