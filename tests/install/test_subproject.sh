#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_subproject.sh SOURCE_DIR BUILD_DIR -- build a project that includes cgpipe by
# add_subdirectory or FetchContent. cgpipe builds without cmocka, tests and examples. The flags of
# one project do not affect the other project. The library is byte-identical to the library of this
# build.
#
# If an object's compile command is the same as in this build, except for directories, the object is
# copied instead of compiled. So the test takes only seconds. CGP_TEST_COMPILE=1 compiles
# everything, as .ci/nightly does, and shows that a build in another directory gives the same bytes.
set -u
source "$(dirname "$0")/support.sh"
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build_dir/CMakeCache.txt"; }

# --- a compiler launcher ---

# $work/launch COMPILER ARGUMENT...: copy the object from this build, or compile it. $work/commands
# has the compile commands of this build, one per line: object, tab, normalized command.
cat >"$work/normalize" <<END
# Print the arguments without build directories and output names. The launcher sources this file.
normalize() {
    while [ \$# -gt 0 ]; do
        case \$1 in
        -MD | -ffile-prefix-map=*) ;;
        -MT | -MF | -o) shift ;;
        *) printf '%s\n' "\$1" ;;
        esac
        shift
    done | sed -e 's#$work/[a-z]*/build/\(_deps/cgpipe-build\|cgpipe\)#@build#g' -e 's#$build_dir#@build#g' -e 's#$source_dir#@source#g' |
        tr '\n' ' '
}
END
cat >"$work/launch" <<END
#!/usr/bin/env bash
source "$work/normalize"
object="" depfile=""
for ((i = 1; i <= \$#; i++)); do
    if [ "\${!i}" = -o ]; then ((j = i + 1)); object=\${!j}; fi
    if [ "\${!i}" = -MF ]; then ((j = i + 1)); depfile=\${!j}; fi
done
# In the project, the object is below the subproject; in this build, it is below the root. The parts
# of both paths after CMakeFiles are equal.
known=\$(awk -F '\t' -v object="CMakeFiles/\${object#*CMakeFiles/}" '\$1 == object {print \$2}' "$work/commands")
if [ -z "\${CGP_TEST_COMPILE-}" ] && [ -n "\$known" ]; then
    if [ "\$known" = "\$(normalize "\$@")" ]; then
        echo "\$object: \$object" | sed 's/:.*/:/' >"\$depfile"
        exec cp "$build_dir/CMakeFiles/\${object#*CMakeFiles/}" "\$object"
    fi
    { echo "\$object is compiled in another way:"; echo "\$known"; normalize "\$@"; echo; } >>"$work/differ"
fi
exec "\$@"
END
chmod +x "$work/launch"
: >"$work/differ"
source "$work/normalize"
jq -r '.[].command | capture(" -o (?<object>CMakeFiles/[^ ]+) ").object + "\t" + .' "$build_dir/compile_commands.json" |
    while IFS=$'\t' read -r object command; do
        eval "set -- $command"
        printf '%s\t%s\n' "$object" "$(normalize "$@")"
    done >"$work/commands"
check "the build has its compile commands" test "$(wc -l <"$work/commands")" -gt 150

# --- the project ---

weights() { (cd "$work" && timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$@" "$work/run") 2>&1 | sed -n 's/^weights, resumed *//p'; }
expected=$(weights "$build_dir/example_resume")

# consume NAME CMAKE_LINES [-DOPTION...]: build a project that includes cgpipe by CMAKE_LINES, and
# check the result.
consume() {
    local name=$1 lines=$2 project=$work/$1
    shift 2
    mkdir -p "$project"
    cp "$source_dir/examples/resume.c" "$project/consumer.c"
    cat >"$project/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(consumer LANGUAGES C)
$lines
add_executable(consumer consumer.c)
target_link_libraries(consumer PRIVATE cgpipe::cgpipe_data m)
add_executable(consumer_static consumer.c)
target_link_libraries(consumer_static PRIVATE cgpipe::cgpipe_data_static m)
END
    check "$name: configure" cmake -S "$project" -B "$project/build" -G Ninja "$@" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \
        -DCMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" -DCMAKE_C_COMPILER_LAUNCHER="$work/launch" \
        -DCGP_WERROR="$(cached CGP_WERROR)" -DCGP_OPENMP="$(cached CGP_OPENMP)"
    check "$name: build" cmake --build "$project/build"
    check "$name: every file of the library was compiled as in the build" sh -c 'cat "$1"; test ! -s "$1"' sh "$work/differ"
    check "$name: no test, no example, no benchmark, no cmocka" \
        test -z "$(cd "$project/build" && cmake --build . --target help | grep -E 'test_|example_|bench_'; grep -i '^[^/].*cmocka' CMakeCache.txt)"
    for library in libcgpipe.so libcgpipe_data.so; do
        check "$name: $library has the bytes of the build's" cmp "$build_dir/$library" "$(find "$project/build" -name $library)"
    done
    jq -r '.[] | select(.file | endswith("/consumer.c")) | .command' "$project/build/compile_commands.json" >"$work/own"
    check "$name: no flag of the library's is the project's" test "$(grep -cE -- ' -(O|g|W|f|std|D)' "$work/own")" = 0 -a -s "$work/own"
    for program in consumer consumer_static; do
        check "$name: $program trains to the same weights" test "$(weights "$project/build/$program")" = "$expected"
    done
}

check "the weights to compare with" grep -qxE '[0-9a-f]{64}' <<<"$expected"
consume subdirectory "add_subdirectory(\"$source_dir\" cgpipe)"
consume fetched "include(FetchContent)
FetchContent_Declare(cgpipe GIT_REPOSITORY https://cgpipe.invalid/cgpipe.git GIT_TAG main)
FetchContent_MakeAvailable(cgpipe)" -DFETCHCONTENT_SOURCE_DIR_CGPIPE="$source_dir"

# --- unsupported builds fail with a message ---

refused() { # refused PATTERN [-DOPTION...]
    local pattern=$1
    shift
    rm -rf "$work/refused"
    cmake -S "$source_dir" -B "$work/refused" -G Ninja "$@" >"$work/said" 2>&1 && return 1
    tr -s ' \n' ' ' <"$work/said" | grep -q -- "$pattern"
}
check "another processor" refused 'cgpipe: expects Linux on x86-64 or aarch64, got Linux on riscv64' -DCMAKE_SYSTEM_NAME=Linux \
    -DCMAKE_SYSTEM_PROCESSOR=riscv64
check "32 bits" refused 'x86-64 or aarch64, got Linux on x86_64, 32 bits' -DCMAKE_SIZEOF_VOID_P=4 -DCMAKE_C_SIZEOF_DATA_PTR=4 -DCMAKE_C_COMPILER_WORKS=1 \
    -DCMAKE_C_ABI_COMPILED=1
check "tests without what they test" refused 'CGP_TESTS expects CGP_EXAMPLES' -DCGP_EXAMPLES=OFF
check "another OpenMP" refused 'CGP_OPENMP expects gomp or omp, got tbb' -DCGP_OPENMP=tbb
finish
