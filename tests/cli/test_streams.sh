#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_streams.sh SOURCE_DIR BUILD_DIR -- trainings with closed or unwritable standard streams, and
# with a limit on file sizes. No output is written into a file of the run, no step is lost, and no
# temporary file is left. Failed writes are reported.
source "$(dirname "$0")/support.sh"

words="$model --data text.txt --batch 8 --chunks 2 --save-every 3"
sha() { sed -n 's/^weights_sha256 //p' "$out"; }
whole() { [ "$(jq -r .step "$1/metrics.jsonl" | tr '\n' ' ')" = "1 2 3 4 5 6 " ]; } # RUN : has six lines
left() { ls -d "$1"/.cgpipe-* 2>/dev/null; }

run train $words --steps 8 --run straight
sha=$(sha)
resumed() { # NAME RUN : check that RUN resumes to the weights of an undisturbed run
    run train --resume --run "$2" --steps 8
    check "$1: resumed, the same weights" test "$(sha)" = "$sha"
}

# --- closed, as under cron and daemons ---

closed() { # NAME COMMAND... : run COMMAND with the streams in $closes closed
    local name=$1
    shift
    eval '"$@"' "$closes"
    code=$?
    check "$name: exit code 0" exits 0
}
for closes in '<&- >&- 2>&-' '<&-' '>&-' '2>&-' '>&- 2>&-'; do
    rm -rf closed
    : >"$out" && : >"$err"
    closed "closed: $closes" "$program" train $words --steps 6 --run closed --json closed.json >/dev/null 2>&1
    check "closed: $closes: metrics.jsonl has the steps alone" whole closed
    check "closed: $closes: the JSON is whole" jq -e .weights_sha256 closed.json >/dev/null
    resumed "closed: $closes" closed
done

# --- a full disk ---

full() { # NAME WORDS... : train with a full device as standard output
    local name=$1
    shift
    : >"$out"
    timeout $((120 * ${CGP_TEST_PATIENCE:-1})) "$program" "$@" >/dev/full 2>"$err" </dev/null
    code=$?
    check "$name > /dev/full: exit code 1" exits 1
    check "$name > /dev/full: one line" lines 1 "$err"
    check "$name > /dev/full: the reason" has "standard output: cannot be written (No space left on device)" "$err"
}
full train train $words --steps 6 --run full --interval 1
check "train > /dev/full: a warning" has "cgpipe: warning: " "$err"
check "train > /dev/full: all steps" whole full
check "train > /dev/full: saved" test "$(readlink full/latest)" = step-00000006
full "train without a step" train --resume --run full
full "train --json -" train $words --steps 6 --run full --overwrite --quiet --json -
resumed "train > /dev/full" full
full "train --sample" train $words --steps 6 --run full --overwrite --sample 20 --json full.json
check "train --sample > /dev/full: the JSON is there" jq -e '.updates == 6' full.json
full plan plan $model
full devices devices
full help help train
full "help of all" help
full version --version
for command in "sample full --length 3" "plan $model --json -"; do
    "$program" $command >/dev/full 2>"$err" </dev/null
    code=$?
    check "${command%% *} > /dev/full: exit code 1" exits 1
    check "${command%% *} > /dev/full: told" has "cannot be written (No space left on device)" "$err"
done
"$program" train $words --steps 6 --run full --overwrite --json - >full.json 2>/dev/full </dev/null
code=$?
check "train --json - 2> /dev/full: exit code 1" exits 1
check "train --json - 2> /dev/full: the JSON is whole" jq -e '.updates == 6' full.json
check "train --json - 2> /dev/full: all steps" whole full

# --- ulimit -f: writes fail; by default SIGXFSZ would end the process ---

limited() { # KIB NAME MESSAGE WORDS...
    local kib=$1 name=$2 message=$3
    shift 3
    (ulimit -f "$kib" && exec timeout $((120 * ${CGP_TEST_PATIENCE:-1})) "$program" "$@") >"$out" 2>"$err" </dev/null
    code=$?
    check "$name: exit code 1" exits 1
    check "$name: the reason" has "$message (File too large)" "$err"
}
limited 8 "ulimit -f, the first checkpoint" "cannot be written" train $words --steps 6 --run limited
check "ulimit -f, the first checkpoint: nothing is left" test ! -e limited
run train $words --steps 6 --run limited
limited 8 "ulimit -f, a later checkpoint" "cannot be written" train --resume --run limited --steps 8
check "ulimit -f, a later checkpoint: nothing is left over" test -z "$(left limited)"
check "ulimit -f, a later checkpoint: the one before is whole" test "$(readlink limited/latest)" = step-00000006
resumed "ulimit -f" limited
limited 1 "ulimit -f, --json" "plan.json: cannot be written" plan $model --stages 5 --json plan.json
check "ulimit -f, --json: nothing is left" test -z "$(left .)" -a ! -e plan.json
limited 3 "ulimit -f, standard output" "standard output: cannot be written" plan $model --stages 5 --json -
run convert limited limited.safetensors
limited 8 "ulimit -f, convert" "cannot be written" convert limited limited-too.safetensors
check "ulimit -f, convert: nothing is left" test -z "$(left .)" -a ! -e limited-too.safetensors
run supervise --restarts 0 --run limited -- sh -c 'kill -XFSZ $$; exit 0'
check "supervise: its command has the system's SIGXFSZ" exits 3

finish
