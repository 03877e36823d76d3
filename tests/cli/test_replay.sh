#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_replay.sh SOURCE_DIR BUILD_DIR -- train --replay-every proves steps on other devices. A clean
# run has the same weights and digests as without the option, within the planned bytes. A flipped
# bit ends the run with code 6 before the step is saved, and the message names step and device. The
# run then resumes from the earlier checkpoint, with the bits of an undisturbed run.
source "$(dirname "$0")/support.sh"

model=gpt2:layers=3,width=32,heads=2,seq=16
words="$model --data $work/files/text.txt --batch 8 --chunks 4 --seed 1 --quiet --steps 8"
lacks() { ! has "$@"; }
weights() { sha256sum <"$1/latest/weights.safetensors"; }
same_weights() { [ "$(weights "$1")" = "$(weights "$2")" ]; }
host=$(uname -n)

run train $words --stages 2 --digest-every 1 --run plain
check "without replays: trained" [ "$code" = 0 ]

# --- clean ---

run train $words --stages 2 --digest-every 1 --replay-every 1 --run proven --json proven.json
check "every step is replayed: trained" [ "$code" = 0 ]
check "the same digests" cmp plain/digests.bin proven/digests.bin
check "the same weights" same_weights plain proven
check "allocated as planned" [ "$(jq .planned_bytes_total proven.json)" = "$(jq .allocated_bytes_total proven.json)" ]
run train $words --stages 3 --schedule zb-v --replay-every 2 --replay-on 2,2,0 --evaluate-every 2 --run zb
check "another schedule and layout: trained" [ "$code" = 0 ]
check "the same weights" same_weights plain zb
run train $words --replay-every 3 --run one
check "one device: trained" [ "$code" = 0 ]
check "the same weights" same_weights plain one

# --- the plan ---

plan="plan $model,vocab=256 --batch 8 --chunks 4 --stages 2"
run $plan --json without.json
check "without the option: no replay bytes" [ "$(jq '[.devices[].replay_bytes] | add' without.json)" = 0 ]
check "without the option: no line" lacks replay "$out"
run $plan --replay-every 5 --json with.json
check "the plan has the bytes of the training" [ "$(jq .planned_bytes_total with.json)" = "$(jq .planned_bytes_total proven.json)" ]
check "the plan prints its bytes" has 'of the total to keep a step and replay it' "$out"
all=$(jq '[.devices[] | .planned_bytes - .replay_bytes] | add' with.json)
check "the other sections are the same" [ "$all" = "$(jq .planned_bytes_total without.json)" ]
needs=$(jq '[.devices[].planned_bytes] | max' without.json)
fails 1 "device cpu:0: needs ..." $plan --replay-every 5 --memory-limit "$needs"

# --- flips ---

# flipped NAME FAULT MESSAGE WORDS.. : the step that follows 5 steps differs.
flipped() {
    local name=$1 fault=$2 message=$3
    shift 3
    rm -rf bad
    CGP_FAULT=$fault run train $words --replay-every 1 --save-every 2 --run bad "$@"
    check "$name: exit code 6" [ "$code" = 6 ]
    check "$name: named" grep -qF "cgpipe: replay: step 6$message" "$err"
    check "$name: nothing was saved" [ "$(readlink bad/latest)" = step-00000004 ]
    check "$name: no metrics of the step" [ "$(tail -1 bad/metrics.jsonl | jq .step)" = 5 ]
}
flipped "forward" flip:0F1@5:1 " differs from its replay (stage 0, " --stages 2
check "forward: the device" grep -qF "device cpu:0 on host $host was wrong, in the step" "$err"
unset CGP_FAULT
run train --resume --run bad --quiet
check "resumed: ended" [ "$code" = 0 ]
check "resumed: the same weights" same_weights plain bad
flipped "weight backward" flip:1W2@5:1 " differs from its replay (stage 1, gradient of " --stages 2 --schedule zb-h1
check "weight backward: the device" grep -qF "device cpu:1 on host $host was wrong, in the step" "$err"
flipped "update" flip:1U@5:1 " differs from its replay (update of " --stages 2
check "update: the device" grep -qF "device cpu:1 on host $host was wrong, in the step" "$err"
flipped "kept" flip:1kept@5:1 ": the state that was kept in the memory of device cpu:1 on host $host has changed" --stages 2
flipped "replay" flip:replay=1,at=0F1@5:1 " differs from its replay (stage 0, " --stages 2
check "replay: the device" grep -qF "device cpu:1 on host $host was wrong, in the replay" "$err"
flipped "one device" flip:0F1@5:1 " differs from its replay (stage 0, " --stages 1
check "one device: no name" grep -qF "one device ran both, so which run was wrong is not known" "$err"

# --- refusals ---

fails 2 "--replay-on: expected --replay-every N, got none" train $words --stages 2 --replay-on 1,0 --run no
fails 2 "--replay-on: expected a number for each of the 2 devices, got 1" train $words --stages 2 --replay-every 1 --replay-on 1 --run no
fails 2 '--replay-on: expected numbers of devices, 0 to 1, with commas between, got "2"' train $words --stages 2 --replay-every 1 --replay-on 1,2 --run no
fails 2 "--replay-on: expected a stage on another device, got the layout of the step" train $words --stages 2 --replay-every 1 --replay-on 0,1 --run no
fails 2 "replay: expected devices of one kind, got cpu:0 and ref:1" train $words --devices cpu,ref --replay-every 1 --run no

finish
