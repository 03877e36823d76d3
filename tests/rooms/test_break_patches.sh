#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every patch of tests/break/ applies to the sources, changes one line, and names a test that is there. (That the test then
# fails is for tests/break/run.sh.)
#
#     bash test_break_patches.sh SOURCE_DIR BUILD_DIR
set -u
source_dir=$(cd "$1" && pwd) || exit 1
export GIT_CEILING_DIRECTORIES=${source_dir%/*}
failed=0
count=0

wrong() {
    echo "not ok: $(basename "$patch"): $1"
    failed=1
}

for patch in "$source_dir"/tests/break/*.patch; do
    count=$((count + 1))
    read -r program function < <(sed -n 's/^Fails: //p' "$patch")
    (cd "$source_dir" && git apply --check "$patch") || wrong "does not apply"
    [ "$(cd "$source_dir" && git apply --numstat "$patch" | cut -f 1,2)" = "1	1" ] || wrong "changes more than one line"
    grep -q '^Breaks: .' "$patch" || wrong "does not say what it breaks"
    grep -qsE "^ +cmocka_unit_test\($function\)|^ +ON_BOTH\($function\)" "$source_dir"/tests/*/"$program.c" ||
        wrong "no test $program: $function"
done
[ "$count" -ge 15 ] || { echo "not ok: expected 15 patches, got $count"; failed=1; }
[ "$failed" = 0 ] && echo "ok: $count patches"
exit $failed
