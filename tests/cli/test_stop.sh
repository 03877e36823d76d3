#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_stop.sh SOURCE_DIR BUILD_DIR -- after `cgpipe stop`, the training saves and ends after its
# next step. If the run is resumed, it ends with the weights of an undisturbed run. `cgpipe stop` is
# refused if no training runs. A stop request that is left over from an earlier training does not
# end a later training.
source "$(dirname "$0")/support.sh"

words="gpt2:layers=2,width=64,heads=2,seq=64 --data $work/files/text.txt --batch 32 --chunks 4 --seed 1"
sha() { sed -n 's/^weights_sha256 //p' "$1"; }

until_has() { # TEXT FILE : wait for the text in the file, at most 20 s.
    for _ in $(seq 1000); do
        grep -qs -- "$1" "$2" && return 0
        sleep 0.02
    done
    return 1
}

fails 2 "stop: RUN is missing (the directory of cgpipe train)" stop
fails 1 "run directory none: no such directory" stop none
mkdir empty
fails 1 "empty/run.json: cannot be read (No such file or directory)" stop empty

run train $words --steps 12 --run straight
whole=$(sha "$out")
fails 1 "run directory straight: no training runs in it" stop straight

# --- a training with slow steps ---

CGP_LOG=error CGP_FAULT=delay:0F0:0.3 "$program" train $words --run one --steps 12 --save-every 0 >train-out 2>train-err </dev/null &
process=$!
until_has '"step":2,' one/metrics.jsonl
run stop one --wait
check "stop: exit code 0" exits 0
check "stop: says what happens" has "stop         requested: the training in one will save and end after its next step" "$out"
wait "$process"
code=$?
check "the training: exit code 130" exits 130
check "the training: one line on standard error" grep -q \
    '^cgpipe: stop request: stopped after step [0-9]* of 12, which is saved (cgpipe train --resume --run one continues)$' train-err
check "the training: nothing else there but the fault" lines 2 train-err
check "the training: the fault, at every log level" has "CGP_FAULT: delay:0F0:0.3: 0F0 takes longer" train-err
done=$(wc -l <one/metrics.jsonl)
check "the training: before its last step ($done)" test "$done" -lt 12
check "stop --wait: has waited, and names the checkpoint" has \
    "ended        the last checkpoint is of step $done (cgpipe train --resume --run one continues)" "$out"
check "the request is gone" test ! -e one/stop
fails 1 "run directory one: no training runs in it" stop one

# --- a leftover request: the training was killed before it read the request ---

touch one/stop
run train --resume --run one
check "left over: the run goes on to its end" exits 0
check "left over: to the same weights" test "$(sha "$out")" = "$whole"
check "left over: it is gone" test ! -e one/stop

# --- a run on another host, whose lock a network file system may hide ---

sed -i 's/"host": "[^"]*"/"host": "far\\u001baway"/' one/run.json
run stop one
check "another host: exit code 0" exits 0
check "another host: says what is not known" has 'stop         requested; whether a training runs in one is unknown: it was last started on far\x1baway, ' "$out"
check "another host: the request is there" test -f one/stop

# --- a file of another kind with the request's name ---

mkdir straight/stop
CGP_FAULT=delay:0F0:0.3 "$program" train --resume --run straight --steps 16 >train-out 2>train-err </dev/null &
process=$!
until_has '"step":13,' straight/metrics.jsonl
run stop straight
check "a directory: is refused" has "straight/stop: is a directory, expected a file of the run" "$err"
wait "$process"
code=$?
check "a directory: the training ends as ever" exits 0
check "a directory: it stays" test -d straight/stop

finish
