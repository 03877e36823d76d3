#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_tables.sh SOURCE_DIR BUILD_DIR -- the tables that bench/tables.py reproduces from
# publications. Planned memory stays below the published figures. Simulated speed-ups equal the
# speed-ups that bubble and balance allow.
source "$(dirname "$0")/support.sh"
for needed in jq python3; do
    command -v $needed >/dev/null || { echo "skip: needs $needed"; exit 77; }
done

# table NAME FILE: plan and simulate the cells of a table; write the results to FILE.
table() {
    BUILD=${program%/*} PLAN_ONLY=1 RESULTS=. PYTHONDONTWRITEBYTECODE=1 python3 "$source_dir/bench/tables.py" "$1" >"$out" 2>"$err"
    check "$1: exit code 0" test $? = 0
    mv results*.json "$2"
}

# largest KEY CELL FILE: print the largest value of KEY over the plans of a cell, in GiB.
largest() { jq "[.cells[$2].plans[].$1] | max / 1073741824" "$3"; }
at_max() { jq -en "$1 <= $2" >/dev/null; }
about() { jq -en "($1 - $2) | fabs <= $3" >/dev/null; }

# --- memory ---

table amoebanetd-memory memory.json
cell=0
for limits in "baseline 100 0.91" "pipeline-1 0.75 3.57" "pipeline-2 2.1 6.07" "pipeline-4 4.5 11.80" \
    "pipeline-8 8.5 20.62"; do
    read -r name activation parameters <<<"$limits"
    check "amoebanetd-memory $name: activations at most $activation GiB" \
        at_max "$(largest activation_bytes $cell memory.json)" "$activation"
    check "amoebanetd-memory $name: model memory as published" \
        about "$(largest model_bytes $cell memory.json)" "$parameters" 0.01
    cell=$((cell + 1))
done
check "amoebanetd-memory: published figures beside ours" test "$(jq '.cells[3].published["Huang activation GB"]' memory.json)" = 15.21

table amoebanetd-memory-old old.json
check "amoebanetd-memory-old: parameters" \
    test "$(jq -c '[.cells[].plans[0].parameters]' old.json)" = \
    "[89745302,358456186,612770042,1163292602,2005905418]"

table unet-memory unet.json
cell=0
for total in 20.3 20.5 43.4 79.1 154.1; do
    check "unet-memory, row $cell: less than the published $total GiB" \
        at_max "$(largest planned_bytes $cell unet.json)" $total
    cell=$((cell + 1))
done

# --- speed ---

# Make costs of a ResNet. The time of each layer is its FLOPs divided by 10 GFLOP/s, and recomputing
# a layer takes as long as its forward.
run profile resnet101 --batch 1 --repeats 1 --peak 10 --json costs.json
check "profile resnet101: exit code 0" exits 0
jq '.copy_bytes_per_second = 1e10
    | .layers |= map(.forward_seconds = (.forward_flops | map(. / 1e10)) | .input_seconds = (.input_flops | map(. / 1e10))
                   | .weight_seconds = (.weight_flops | map(. / 1e10)) | .recompute_seconds = .forward_seconds)' \
    costs.json >even.json
COSTS=even.json table resnet101-speed speed.json
speedup() { jq ".cells[$1].$2.speedup" speed.json; }
check "resnet101-speed: naive-1 is the unit" about "$(speedup 0 own_balance_simulated)" 1 1e-9
# F, I, W and R take about the same time. Two micro-batches run F, I and W, and one of them also
# runs R. So the speed-up is 6 / (6 + 1) = 6/7.
check "resnet101-speed: pipeline-1 recomputes every other micro-batch" \
    about "$(speedup 1 published_balance_simulated)" 0.857 0.005
# With 8 stages, R takes a quarter of the time, and 7 of 157 time slots are bubble. So the speed-up
# is at most 8 x 3/4 x 150/157 = 5.73. It is only 5.6 because of imbalance.
check "resnet101-speed: pipeline-8 with our balance" \
    about "$(speedup 4 own_balance_simulated)" 5.6 0.15
check "resnet101-speed: better than the published balance" \
    at_max "$(speedup 4 published_balance_simulated)" "$(speedup 4 own_balance_simulated)"
# Without recomputation, a step would be faster by a factor of 4/3. Without the bubble, it would be
# faster by a factor of 157/150.
check "resnet101-speed: without recomputation and bubble two fifths faster" \
    about "$(speedup 4 best_simulated) / $(speedup 4 own_balance_simulated)" 1.365 0.05
check "resnet101-speed: under 22 GiB a device" \
    at_max "$(jq '.cells[4].best_simulated.largest_device_bytes' speed.json)" 23622320128
check "resnet101-speed: published figures beside ours" test "$(jq '.cells[4].published["samples/s"]' speed.json)" = 411.662
# With links of 1 MB/s, transfers take a visible part of the step.
jq '.copy_bytes_per_second = 1e6' even.json >slow.json
for links in even slow; do
    run plan resnet101 --batch 5400 --chunks 150 --stages 8 --recompute except_last --schedule gpipe \
        --balance time --costs $links.json --json plan-$links.json
done
check "resnet101-speed: transfers count" test \
    "$(jq -s '.[1].step_seconds_simulated > 1.1 * .[0].step_seconds_simulated' plan-even.json plan-slow.json)" = true

finish
