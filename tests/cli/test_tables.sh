#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_tables.sh SOURCE_DIR BUILD_DIR -- the published tables: what is planned stays below what was
# published, and simulated speed-ups are what the bubble and the balance allow.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

# largest KEY CELL FILE: the most of a figure over the plans of a cell, in GiB.
largest() { jq "[.cells[$2].plans[].$1] | max / 1073741824" "$3"; }
at_max() { jq -en "$1 <= $2" >/dev/null; }
about() { jq -en "($1 - $2) | fabs <= $3" >/dev/null; }

# --- memory ---

run bench amoebanetd-memory --plan-only --json memory.json
check "amoebanetd-memory: exit code 0" exits 0
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
check "amoebanetd-memory: published figures beside ours" has "15.21" "$out"

run bench amoebanetd-memory --old --plan-only --json old.json
check "amoebanetd-memory --old: exit code 0" exits 0
check "amoebanetd-memory --old: parameters" \
    test "$(jq -c '[.cells[].plans[0].parameters]' old.json)" = \
    "[89745302,358456186,612770042,1163292602,2005905418]"

run bench unet-memory --plan-only --json unet.json
check "unet-memory: exit code 0" exits 0
cell=0
for total in 20.3 20.5 43.4 79.1 154.1; do
    check "unet-memory, row $cell: less than the published $total GiB" \
        at_max "$(largest planned_bytes $cell unet.json)" $total
    cell=$((cell + 1))
done

# --- speed ---

# A ResNet whose layers take as long as they have operations, at 10 GFLOP/s; what is recomputed is
# all of forward.
run profile resnet101 --batch 1 --repeats 1 --peak 10 --json costs.json
check "profile resnet101: exit code 0" exits 0
jq '.copy_bytes_per_second = 1e10
    | .layers |= map(.forward_seconds = .forward_flops / 1e10 | .input_seconds = .input_flops / 1e10
                   | .weight_seconds = .weight_flops / 1e10 | .recompute_seconds = .forward_seconds)' \
    costs.json >even.json
run bench resnet101-speed --plan-only --costs even.json --json speed.json
check "resnet101-speed: exit code 0" exits 0
speedup() { jq ".cells[$1].$2.speedup" speed.json; }
check "resnet101-speed: naive-1 is the unit" about "$(speedup 0 own_balance_simulated)" 1 1e-9
# F + I + W of 3 nearly equal parts, and R for one of two micro-batches: 6 / 7
check "resnet101-speed: pipeline-1 recomputes every other micro-batch" \
    about "$(speedup 1 published_balance_simulated)" 0.857 0.005
# 150 micro-batches through 8 stages: 8 x 3/4 x 150/157 = 5.73, less what the balance loses
check "resnet101-speed: pipeline-8 with our balance" \
    about "$(speedup 4 own_balance_simulated)" 5.6 0.15
check "resnet101-speed: better than the published balance" \
    at_max "$(speedup 4 published_balance_simulated)" "$(speedup 4 own_balance_simulated)"
# 4/3 without recomputation, and 157/150 of that without a bubble
check "resnet101-speed: without recomputation and bubble two fifths faster" \
    about "$(speedup 4 best_simulated) / $(speedup 4 own_balance_simulated)" 1.365 0.05
check "resnet101-speed: under 22 GiB a device" \
    at_max "$(jq '.cells[4].best_simulated.largest_device_bytes' speed.json)" 23622320128
check "resnet101-speed: published figures beside ours" has "411.662" "$out"
fast=$(speedup 4 own_balance_simulated)
jq '.copy_bytes_per_second = 1e6' even.json >slow.json
run bench resnet101-speed --plan-only --costs slow.json --json speed.json
check "resnet101-speed: transfers count" at_max "$(speedup 4 own_balance_simulated)" "$fast - 0.5"

finish
