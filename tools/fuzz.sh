#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run libFuzzer on each reader of files, with the address and undefined sanitizers:
#
#     tools/fuzz.sh BUILD SECONDS [READER...]        SECONDS for each reader: schedule, trace, safetensors, tokens, tokenizer
#
# From tests/fuzz/corpus/NAME; what is found beyond that is kept in BUILD/fuzz/NAME for the next time, and an input that breaks
# something in BUILD/fuzz/NAME-crash-*. Prints executions, and edges of the program covered. Exit code 1 if something broke.
set -eu
build=$1/fuzz
seconds=$2
shift 2
[ $# -gt 0 ] || set -- schedule trace safetensors tokens tokenizer
command -v clang >/dev/null 2>&1 || { echo "fuzz: needs clang with libFuzzer (apt-get install clang)" >&2; exit 1; }
mkdir -p "$build"

# NAME "FOLDERS of its sources": leave the program in $build/NAME.bin
build_target() {
    sources=$(for folder in $2; do find "src/$folder" -name '*.c'; done)
    # shellcheck disable=SC2086
    clang -g -O1 -DCGP_LIBFUZZER -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Iinclude -Isrc \
        -Itests/support "tests/fuzz/test_fuzz_$1.c" $sources -lcmocka -ljansson -lcrypto -ljpeg -lpng -lpcre2-8 -lm \
        -lpthread -o "$build/$1.bin"
}

failed=0
run_target() {
    mkdir -p "$build/$1"
    log=$build/$1.log
    length=4096
    [ "$1" != trace ] || length=16384
    if "$build/$1.bin" -max_len="$length" -max_total_time="$seconds" -print_final_stats=1 -artifact_prefix="$build/$1-" \
        "$build/$1" "tests/fuzz/corpus/$1" >"$log" 2>&1; then
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

for target in "$@"; do
    case $target in
    schedule | trace) build_target "$target" "schedule trace base" ;;
    safetensors) build_target safetensors "checkpoint tensor base" ;;
    tokens) build_target tokens "data tensor base" ;;
    tokenizer) build_target tokenizer "data tensor base" ;;
    *) echo "fuzz: $target: expected schedule, trace, safetensors, tokens or tokenizer" >&2 && exit 1 ;;
    esac
    run_target "$target"
done
exit $failed
