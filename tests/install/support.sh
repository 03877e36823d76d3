# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# support.sh -- functions that run the examples as tests. Tests source this file.

# run_examples FOLDER PREFIX WHAT: run the example programs PREFIX<name> on the files in FOLDER, and
# check their output.
run_examples() {
    local directory=$1 prefix=$2 what=$3
    run_example "$what" "${prefix}first_step" '^loss 5\.[45]'
    run_example "$what" "${prefix}hello_pipeline" '^step 300  loss 0\.[0-4]'
    run_example "$what" "${prefix}guide" '^validation loss [0-9.]*, [4-9][0-9]\.[0-9] % right$' "$work/guide-run" 2 300
    run_example "$what" "${prefix}from_the_guide" '^trained: loss 0\.[0-9]* -> 0\.[0-2]'
    run_example "$what" "${prefix}custom_op" '^step 400  loss 0\.[01]'
    run_example "$what" "${prefix}custom_schedule" '^the same weights, bit for bit$' "$directory/custom_schedule.csv"
    run_example "$what" "${prefix}external_loss" '^farthest from the sine: 0\.[01]'
    run_example "$what" "${prefix}custom_data" '^right about (29[0-9]|300) of 300 points'
    run_example "$what" "${prefix}resume" '^weights, resumed    [0-9a-f]{64}$' "$work/run"
}

# run_example WHAT PROGRAM PATTERN WORDS... : run PROGRAM in a directory of the test; a line of its
# output must match PATTERN
run_example() {
    local what=$1 program=$2 pattern=$3
    shift 3
    if (cd "$work" && timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$program" "$@") >"$work/out" 2>&1 && grep -qE "$pattern" "$work/out"; then
        ok "$what: $(basename "$program")"
    else
        not_ok "$what: $(basename "$program"): failed, or no line like $pattern in:"
        tail -n 20 "$work/out"
    fi
}

passed=0 failed=0
ok() { echo "ok - $1"; passed=$((passed + 1)); }
not_ok() { echo "not ok - $1"; failed=$((failed + 1)); }

# check NAME COMMAND... : run the command; if the command fails, show its output.
check() {
    local name=$1
    shift
    if "$@" >"$work/out" 2>&1; then ok "$name"; else
        not_ok "$name (failed: $*)"
        tail -n 20 "$work/out"
    fi
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
