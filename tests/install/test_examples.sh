#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_examples.sh SOURCE_DIR BUILD_DIR -- every example runs, and prints the output that its first
# comment describes.
set -u
source "$(dirname "$0")/support.sh"

run_examples "$1/examples" "$2/example_" "example"
for file in "$1"/examples/*.c; do
    check "$(basename "$file") is short" test "$(wc -l <"$file")" -lt 150
    check "$(basename "$file") is run here" grep -qE "(prefix\}|/example_)$(basename "$file" .c)\"" "$(dirname "$0")/support.sh" "$1/tests/mpi/test_mpi_example.sh"
done

# For an invalid schedule table, the example prints a drawing with the faulty action in brackets.
sed 's/1F0,1I0/1I0,1F0/' "$1/examples/custom_schedule.csv" >"$work/wrong.csv"
"$2/example_custom_schedule" "$work/wrong.csv" >"$work/said" 2>&1
check "custom_schedule refuses a wrong table" test $? -eq 1
check "custom_schedule draws where it is wrong" grep -qF '[1I0]' "$work/said"
finish
