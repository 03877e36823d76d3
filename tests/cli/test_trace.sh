#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_trace.sh SOURCE_DIR BUILD_DIR -- measured steps: the option --trace of train and bench, and
# `cgpipe schedule --compare`.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

tiny="bench gpt2 --model gpt2:layers=3,width=32,heads=2,seq=16,vocab=64 --batch 4 --chunks 4 --steps 3 --stages 2"

# --- written ---

run $tiny --trace t.json,t.svg,t.txt
check "bench --trace: exit code 0" exits 0
check "bench --trace: says what it wrote" has "trace        step 3 in t.json, t.svg, t.txt" "$out"
check "trace.json: slices of both devices, F and B" \
    test "$(jq '[.traceEvents[] | select(.ph == "X")] | length' t.json)" -eq 16
check "trace.json: the whole step beside them" \
    test "$(jq -r '.cgpipe | [.schedule, (.edges | length), (.end_seconds | length)] | join(" ")' t.json)" = "gpipe 2 2"
check "trace.svg" has "<title>gpipe, measured: 2 devices, 2 stages, 4 micro-batches</title>" t.svg
check "trace.txt: a heading and a row per device" lines 3 t.txt
check "trace.txt: the step" has "gpipe, step 3 as measured: " t.txt
check "trace.txt: fits a page" test "$(widest t.txt)" -le 120

# --- compared ---

run schedule --compare t.json --json c.json --svg c.svg
check "schedule --compare: exit code 0" exits 0
check "schedule --compare: planned" has "planned: " "$out"
check "schedule --compare: measured" has "measured: " "$out"
check "schedule --compare: two pictures of two devices and their rows of the table" \
    test "$(grep -c '^device:[01] ' "$out")" -eq 6
check "schedule --compare: fits a page" test "$(widest "$out")" -le 120
adds_up() { # check that the table's rows add up to 100 %, except for rounding
    awk '/^where the time/ { on = 1 } on && (/^device:/ || /^all/) {
        sum = 0; for (i = 2; i <= NF; i++) { sum += $i; if ($i < 0) bad = 1 }
        if (NF != 8 || sum < 99.9 || sum > 100.1) bad = 1; rows++ } END { exit bad || rows != 3 }' "$1"
}
check "schedule --compare: each row is 100 %" adds_up "$out"
check "schedule --compare --json: shares add up to 1" \
    test "$(jq '[.shares, .shares_per_device[]] | all((add - 1 | fabs) < 1e-9)' c.json)" = true
check "schedule --compare --json: no share is below 0" \
    test "$(jq '[.shares[], .shares_per_device[][]] | all(. >= 0)' c.json)" = true
check "schedule --compare --json: compute is what the bubble leaves" \
    test "$(jq '(1 - .bubble_measured - .shares.compute | fabs) < 1e-9' c.json)" = true
check "schedule --compare --json: all keys" keys c.json schedule devices stages chunks measured_seconds \
    planned_seconds equal_stages_seconds varied_seconds bubble_measured bubble_planned compute bubble imbalance \
    variation copy wake_up other shares_per_device
check "schedule --compare --json: the plan takes less than the step" \
    test "$(jq '.planned_seconds > 0 and .measured_seconds > 0' c.json)" = true
check "schedule --compare --svg: both" has "gpipe, planned and measured: 2 devices" c.svg
run schedule --compare t.json --json -
check "schedule --compare --json -: only JSON" test "$(jq -r .schedule "$out")" = gpipe
run schedule --compare t.json --svg -
check "schedule --compare --svg -: only the picture" has "<svg" <(head -n 1 "$out")

# --- other runs ---

for stages in 1 3; do
    run $tiny --stages $stages --schedule 1f1b --recompute always --trace other.json
    run schedule --compare other.json --svg other.svg
    check "$stages stages, recomputed: exit code 0" exits 0
    check "$stages stages, recomputed: R is drawn" has ">recompute<" other.svg
done
for schedule in zb-v dualpipe-v "interleaved --virtual 2"; do
    run $tiny --model gpt2:layers=4,width=32,heads=2,seq=16,vocab=64 --schedule $schedule --trace other.json
    run schedule --compare other.json --json other-c.json
    check "$schedule: exit code 0" exits 0
    check "$schedule: several stages on a device" test "$(value stages other-c.json)" -eq 4
    check "$schedule: each row is 100 %" adds_up "$out"
done
run bench resnet:depth=8,classes=10,image=16 --batch 2 --chunks 2 --steps 1 --stages 2 --trace m.json
check "bench MODEL --trace" exits 0
check "bench MODEL --trace: the file" test -s m.json
run train $model --data text.txt --batch 4 --steps 3 --stages 2 --trace train.json
check "train --trace: exit code 0" exits 0
check "train --trace: says so" has "trace        step 3 in train.json" "$out"
run schedule --compare train.json
check "train --trace: can be compared" exits 0
rm train.json
run train --resume --steps 4
check "train --resume: a trace is of one start" test ! -e train.json
run train --resume --steps 4 --trace none.json
check "train --trace without a step: exit code 0" exits 0
check "train --trace without a step: says so" has "trace        none: no step has run" "$out"
check "train --trace without a step: no file" test ! -e none.json

# --- refused ---

fails 2 "--trace t.png: expected a name that ends in .json, .svg or .txt" $tiny --trace t.json,t.png
fails 2 "--trace -: expected a name that ends in ..." $tiny --trace -
fails 2 "--trace: expected one run to trace, got --plan-only" $tiny --plan-only --trace t.json
fails 2 "--trace: expected one run to trace, got --grid" bench gpt2 --grid --trace t.json
fails 1 "missing/t.svg: cannot be written (missing/: No such file or directory)" \
    $tiny --trace missing/t.svg
fails 1 "missing/t.svg: cannot be written ..." \
    train $model --data text.txt --run other --trace missing/t.svg
mkdir directory.json
fails 1 "directory.json: is a directory, expected a file name" $tiny --trace directory.json
fails 2 "--compare: expected no NAME beside the file, got gpipe" schedule gpipe --compare t.json
for option in "stages 2" "chunks 2" "virtual 2" "recompute always" "check x.csv" "cost-f 2" "latency 1" \
    "trace-json x.json" csv list; do
    fails 2 "--${option%% *}: cannot be with --compare (leave out one)" schedule --compare t.json --$option
done
fails 2 "--csv, --csv-transfers, ..." schedule --compare t.json --svg - --json -
fails 1 "nothing.json: cannot be read (No such file or directory)" schedule --compare nothing.json
fails 1 "t.svg: byte ..." schedule --compare t.svg
run schedule gpipe --trace-json simulated.json
fails 1 "simulated.json: expected the trace of a measured step, ..." schedule --compare simulated.json
jq 'del(.cgpipe.csv)' t.json >b.json
fails 1 "b.json: cgpipe.csv: expected a schedule as CSV" schedule --compare b.json
jq '.cgpipe.end_seconds[1] |= .[1:]' t.json >b.json
fails 1 "b.json: cgpipe.end_seconds: expected the times of the ..." schedule --compare b.json
jq '.cgpipe.end_seconds[0][0] = -1' t.json >b.json
fails 1 "b.json: times: device 0, position 0, 0F0: expected ..." schedule --compare b.json
head -c 900 t.json >b.json
fails 1 "b.json: byte ..." schedule --compare b.json

finish
