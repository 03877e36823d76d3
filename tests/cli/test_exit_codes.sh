#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_exit_codes.sh SOURCE_DIR BUILD_DIR -- the page and the manual have the exit codes of
# cli/errors.h, and commands end with them.
source "$(dirname "$0")/support.sh"

codes() { sed -n '/^enum {/,/^};/s/^ *CLI_[A-Z]* = \([0-9]*\),.*/\1/p' "$source_dir/cli/errors.h" | xargs; }
page=$source_dir/docs/reference/exit-codes.md
check "there are exit codes" test "$(codes | wc -w)" -ge 8
check "the page has the codes of the program" test "$(sed -n 's/^| \([0-9][0-9]*\) |.*/\1/p' "$page" | xargs)" = "$(codes)"
manual() { # the codes in the text of the manual pages: "0 success; 1 failure; ..."
    sed -n '/EXIT STATUS/,/^}/p' "$source_dir/cli/manual.c" | tr -d '\n"' | tr -s ' ' | sed 's/After 4.*//' |
        grep -oE '(n |; )[0-9]+ ' | grep -oE '[0-9]+' | xargs
}
check "the manual too" test "$(manual)" = "$(codes)"

tiny=gpt2:layers=1,width=8,heads=2,vocab=256,seq=8
small="--batch 2 --chunks 1 --validation 0.01"
# shellcheck disable=SC2086 # options, with spaces between
train() { run train $tiny --data text.txt $small "$@"; }

train --steps 2 --run one --digest-every 1
check "0: all steps are done" exits 0
run sample nowhere
check "1: a failure" exits 1
run sample --frob one
check "2: a wrong command line" exits 2
run supervise --restarts 0 --run none -- false
check "3: supervise gave up" exits 3
head -c 4096 /dev/zero | tr '\0' '\377' >bad.bin
# shellcheck disable=SC2086
run train $tiny --data bad.bin $small --steps 2 --run bad
check "4: a sample cannot be used" exits 4
train --steps 2 --run other --digest-every 1 --seed 1
run compare one other
check "5: the runs differ" exits 5
CGP_FAULT=flip:0F0 train --steps 2 --run faulty --replay-every 1
check "6: a step differs from its replay" exits 6
train --steps 1000000 --minutes 0.01 --run long
check "0: the time is up" exits 0
"$program" train $tiny --data text.txt --batch 2 --chunks 1 --steps 1000000 --run stopped >"$out" 2>"$err" &
process=$!
for _ in $(seq 600); do [ -s stopped/metrics.jsonl ] && break; sleep 0.1; done
kill "$process"
wait "$process"
code=$?
check "130: a signal stopped it" exits 130
check "and it has saved" test -e stopped/latest/checkpoint.json
set -o pipefail
"$program" help train | true
code=$?
check "0 or 141: the reader of a short text is gone" test "$code" = 0 -o "$code" = 141
(sleep 0.2; "$program" help train; echo $? >closed) 2>"$err" | true
code=$(cat closed)
check "141: the reader is gone" exits 141
finish
