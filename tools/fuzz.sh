#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run libFuzzer on each reader of files and texts, with the address and undefined sanitizers:
#
#     tools/fuzz.sh BUILD SECONDS READER...        SECONDS for each reader
#     PACK=1 tools/fuzz.sh BUILD SECONDS READER... then pack the smallest set of inputs with the
#                                                  same coverage into the corpus
#
# The modules that implement a reader are built with the sanitizers. Other code comes from BUILD's
# static libraries. Fuzzing starts from the inputs packed in tests/fuzz/corpus/NAME. New inputs are
# kept in BUILD/fuzz/NAME for the next run, and crashing inputs in BUILD/fuzz/NAME-crash-*. The
# limits for one input are 10 s and 2 GB. The script prints the number of executions, and the number
# of covered edges of the program. Exit code 1: a reader crashed.
set -eu
library="$1/libcgpipe_data.a $1/libcgpipe.a" support=$1/tests/libtest_support.a
build=$1/fuzz
seconds=$2
shift 2
clang=${CLANG:-clang}
command -v "$clang" >/dev/null 2>&1 || { echo "fuzz: needs clang with libFuzzer (apt-get install clang)" >&2; exit 1; }
mkdir -p "$build/objects"
flags="-g -O1 -DCGP_LIBFUZZER -fno-sanitize-recover=all -Iinclude -Isrc -Icli -Itests/fuzz -Itests/support -I. -I$build/../generated"
export ASAN_OPTIONS="detect_stack_use_after_return=1${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

# objects DIRECTORY...: build the sources in these directories, and print the object files.
objects() {
    for directory in "$@"; do
        for source in $(find "$directory" -name '*.c' ! -path cli/main.c ! -path cli/manual.c ! -path '*/templates/*' | sort); do
            object=$build/objects/$(echo "$source" | tr / -).o
            # shellcheck disable=SC2086
            [ "$object" -nt "$built" ] ||
                "$clang" $flags -fsanitize=fuzzer-no-link,address,undefined -c "$source" -o "$object"
            echo "$object"
        done
    done
}

# build_target NAME DIRECTORY...: build the program $build/NAME.bin with the sources in these
# directories.
build_target() {
    name=$1
    shift
    made=$(objects "$@")
    # shellcheck disable=SC2086
    "$clang" $flags "-DFUZZ_READERS=READER($name)" "-DTEST_DATA=\"tests/data\"" -fsanitize=fuzzer,address,undefined \
        tests/fuzz/test_fuzz.c tests/fuzz/files.c "tests/fuzz/readers/$name.c" $made "$support" $library \
        -lcmocka -ljansson -lcrypto -ljpeg -lpng -lyaml -lgomp -lm -lpthread -o "$build/$name.bin"
}

failed=0
run_target() {
    mkdir -p "$build/$1"
    log=$build/$1.log
    if FUZZ_CORPUS=tests/fuzz/corpus/$1 FUZZ_INTO=$build/$1 "$build/$1.bin" -max_len=16384 -timeout=10 -rss_limit_mb=2048 \
        -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$build/$1-" "$build/$1" >"$log" 2>&1; then
        verdict="nothing found"
    else
        verdict="BROKEN, see $log and $build/$1-*"
        failed=1
    fi
    edges=$(sed -n 's/.*(\([0-9]*\) inline 8-bit counters).*/\1/p' "$log" | head -n 1)
    covered=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%-12s %10s executions, %s of %s edges covered, %s\n' "$1" "${executions:-?}" "${covered:-?}" "${edges:-?}" \
        "$verdict"
}

pack() {
    rm -rf "$build/$1-fewest"
    mkdir "$build/$1-fewest"
    "$build/$1.bin" -merge=1 -max_len=4096 "$build/$1-fewest" "$build/$1" >"$build/$1-merge.log" 2>&1
    FUZZ_PACK=tests/fuzz/corpus/$1 FUZZ_FROM=$build/$1-fewest "$build/$1.bin"
}

built=$build/began
touch "$built"
for target in "$@"; do
    case $target in
    schedule | trace) build_target "$target" src/schedule src/base ;;
    safetensors | checkpoint) build_target "$target" src/checkpoint src/base ;;
    tokens | tokenizer | tokenizer_json | images | arrays) build_target "$target" data src/base ;;
    models) build_target models models src/model src/plan src/partition src/op src/schedule src/base ;;
    graph) build_target graph src/model src/plan src/partition src/op src/schedule src/base ;;
    devices) build_target devices src/backend/device_names.c src/base ;;
    huggingface) build_target huggingface models src/checkpoint src/base ;;
    cluster | costs | diagnosis | options | record | run | run_file) build_target "$target" cli models src/checkpoint src/base ;;
    *) echo "fuzz: $target: expected the name of a reader with a tests/fuzz/readers/NAME.c" >&2 && exit 1 ;;
    esac
    run_target "$target"
    [ -z "${PACK:-}" ] || pack "$target"
done
exit $failed
