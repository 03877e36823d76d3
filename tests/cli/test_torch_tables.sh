#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_torch_tables.sh SOURCE_DIR BUILD_DIR -- schedule tables that PyTorch wrote
# (tests/data/schedules) run. A table with transfers has the same plan as the table without
# transfers. A step is bit-equal to a step in one stage.
source "$(dirname "$0")/support.sh"

tables=$1/tests/data/schedules
model=gpt2:layers=6,width=8,heads=2,seq=4,vocab=16

# table VERSION NAME SIZE FORMAT: print one table of the file for this version of PyTorch.
table() {
    awk -v head="# $2 $3 format=$4" '$0 == head { on = 1; next } /^$/ { on = 0 } on' "$tables/torch-$1.txt"
}

# Print the plan without dates and measured values.
plan_of() { # FILE DEVICES CHUNKS
    "$program" plan $model --schedule "$1" --stages "$2" --batch "$3" --chunks "$3" --json - 2>/dev/null |
        jq -S 'del(.command, .date, .schedule)'
}

# LoopedBFS runs backward from the last micro-batch to the first. So its results differ by rounding
# from the results of one stage, and the check is skipped.
same_bits() { # FILE DEVICES CHUNKS NAME
    case $4 in *LoopedBFS*) return ;; esac
    run check $model --schedule "$1" --stages "$2" --batch "$3" --chunks "$3"
    check "$4: one stage's bits" has "the same to the bit: loss " "$out"
}

tried=0
while read -r version name devices stages chunks; do
    size="devices=$devices stages=$stages chunks=$chunks"
    table "$version" "$name" "$size" compute_only >plain.csv
    check "$version $name: is there" test -s plain.csv
    same_bits plain.csv "$devices" "$chunks" "$version $name"
    plan_of plain.csv "$devices" "$chunks" >plain.json
    for format in compute_comms compute_comms+defer+budget; do
        table "$version" "$name" "$size" $format >comms.csv
        test -s comms.csv || continue
        tried=$((tried + 1))
        same_bits comms.csv "$devices" "$chunks" "$version $name $format"
        plan_of comms.csv "$devices" "$chunks" >comms.json
        check "$version $name $format: a plan" test -s comms.json
        # plan_sha256 differs, because it covers the table as given
        check "$version $name $format: the plan without transfers" cmp <(grep -v plan_sha256 plain.json) <(grep -v plan_sha256 comms.json)
    done
done <<'LIST'
2.5.1 ScheduleInterleavedZeroBubble 2 4 4
2.6.0 ScheduleZBVZeroBubble 2 4 4
2.9.0 ScheduleDualPipeV 2 4 4
2.9.0 Schedule1F1B 2 2 3
2.15.0 ScheduleGPipe 2 2 3
2.15.0 Schedule1F1B 4 4 8
2.15.0 ScheduleLoopedBFS 2 4 4
2.15.0 ScheduleInterleaved1F1B 2 4 4
2.15.0 ScheduleInterleaved1F1B 4 8 8
2.15.0 ScheduleInterleavedZeroBubble 2 4 4
2.15.0 ScheduleZBVZeroBubble 4 8 8
2.15.0 ScheduleDualPipeV 4 8 10
LIST
check "tables with transfers" test "$tried" -ge 12

# With and without transfers, a table has the same metrics, except for the buffers that posted
# receives occupy.
table 2.15.0 ScheduleInterleaved1F1B "devices=4 stages=8 chunks=8" compute_comms >comms.csv
run schedule --check comms.csv
check "schedule --check: makespan and bubble" has "makespan     28.5, bubble 15.79 %" "$out"
"$program" schedule --check comms.csv --csv-transfers >written.csv
run schedule --check written.csv
check "schedule --csv-transfers: and again" has "makespan     28.5, bubble 15.79 %" "$out"

# Training with a table gives the same weights whether or not the table has transfers. These weights
# equal the weights of training in one stage.
weights() { find "$1/" -name '*.safetensors' -exec sha256sum {} + | sed 's/ .*//'; }
train() { # RUN DEVICES SCHEDULE
    run train $model --data random --batch 4 --chunks 4 --steps 3 --stages "$2" --schedule "$3" --run "$1"
    check "train --stages $2 --schedule $3" exits 0
    check "train: weights are there" test -n "$(weights "$1")"
}
for name in ScheduleZBVZeroBubble ScheduleLoopedBFS; do
    for format in compute_only compute_comms; do
        table 2.15.0 $name "devices=2 stages=4 chunks=4" $format >$name-$format.csv
        train $name-$format 2 $name-$format.csv
    done
    check "train, $name: the same weights" \
        test "$(weights $name-compute_only)" = "$(weights $name-compute_comms)"
done
train one 1 gpipe
check "train: the same weights as in one stage" test "$(weights one)" = "$(weights ScheduleZBVZeroBubble-compute_comms)"

finish
