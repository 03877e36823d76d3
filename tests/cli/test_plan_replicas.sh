#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_plan_replicas.sh SOURCE_DIR BUILD_DIR -- `cgpipe plan --search` with replicas. The best plan
# of --replicas auto is compared with the plans of all layouts, which are simulated one by one. The
# commands that the search prints, and the plan files that it writes, have the plans of its table.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

model=gpt2:layers=2,width=32,heads=2,seq=16,vocab=64 # 6 layers
words="--batch 16 --chunks 8"

# cluster FILE BETWEEN WITHIN : write the file of two hosts with two devices each, and these bandwidths
# between and within the hosts
cluster() {
    cat >"$1" <<JSON
{
  "cgpipe_cluster": 1,
  "hosts": [
    {"name": "a", "cores": 2, "memory_bytes": 8589934592, "latency_seconds": 1e-7, "bytes_per_second": $3},
    {"name": "b", "cores": 2, "memory_bytes": 8589934592, "latency_seconds": 1e-7, "bytes_per_second": $3}
  ],
  "devices": [
    {"kind": "x", "host": 0, "flops_per_second": {"f32": 1e10}, "bytes_per_second": 1e10},
    {"kind": "x", "host": 0, "flops_per_second": {"f32": 1e10}, "bytes_per_second": 1e10},
    {"kind": "x", "host": 1, "flops_per_second": {"f32": 1e10}, "bytes_per_second": 1e10},
    {"kind": "x", "host": 1, "flops_per_second": {"f32": 1e10}, "bytes_per_second": 1e10}
  ],
  "links": [{"latency_seconds": 1e-6, "bytes_per_second": $2}]
}
JSON
}
cluster fast.json 1e10 1e10
cluster middle.json 1.5e8 1e8
cluster slow.json 1e7 1e10

# --- the best of all layouts ---

# balances STAGES LAYERS: print all balances, as "1,2,3"
balances() {
    local first rest
    if [ "$1" = 1 ]; then
        echo "$2"
        return
    fi
    for first in $(seq 1 $(($2 - $1 + 1))); do
        for rest in $(balances $(($1 - 1)) $(($2 - first))); do echo "$first,$rest"; done
    done
}

# plan_all FILE OPTION... : plan every layout on four devices; write one line "SECONDS REPLICAS" for
# each layout to the file `all`
plan_all() {
    local r balance
    : >all
    for r in 1 2 4; do
        for balance in $(balances $((4 / r)) 6); do
            run plan $model $words --replicas $r --stages $((4 / r)) --gradient-groups 8 --balance "$balance" --cluster "$@" --json one.json
            [ "$code" = 0 ] || return 1
            jq -r '"\(.step_seconds_simulated) \(.replicas)"' one.json >>all
        done
    done
}

# best_of_all REPLICAS : print the shortest step in the file `all`, of all or of this many replicas
best_of_all() { awk -v r="${1:-}" '(r == "" || $2 == r) && (best == "" || $1 + 0 < best + 0) { best = $1 } END { print best }' all; }
# same NUMBER NUMBER : equal in single precision, in which the search compares steps
same() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 0 && (a - b) ^ 2 <= (1e-7 * a) ^ 2) }'; }

winners='' fastest=''
for file in fast middle slow; do
    given="--schedule 1f1b --recompute never"
    # shellcheck disable=SC2086 # split into words
    check "$file: every layout is planned" plan_all $file.json $given
    check "$file: 16 layouts" test "$(wc -l <all)" = 16
    # shellcheck disable=SC2086 # split into words
    run plan $model $words --devices 4 --search --replicas auto --cluster $file.json $given --json found.json
    check "$file: the search finds the best of all" same "$(jq .choices[0].step_seconds_simulated found.json)" "$(best_of_all)"
    for r in 1 2 4; do
        check "$file: the best with $r replicas" same "$(best_of_all $r)" \
            "$(jq ".choices[] | select(.replicas == $r) | .step_seconds_simulated" found.json)"
    done
    winners="$winners $(jq .choices[0].replicas found.json)"
    [ $file != middle ] || fastest=$(best_of_all)
done
check "the speed of the links decides the number of replicas ($winners)" test "$winners" = " 4 2 1"

# --- a search that may change everything ---

run plan $model $words --devices 4 --search --replicas auto --cluster middle.json --json found.json
check "auto: exit code 0" exits 0
check "auto: fits a page" test "$(sed '$d' "$out" | widest)" -le 120
check "auto: ten rows" jq -e '.choices | length == 10' found.json
check "auto: the best is first" jq -e '[.choices[].step_seconds_simulated] | . as $s | all(range(1; length); $s[.] >= $s[. - 1] * (1 - 1e-7))' found.json
check "auto: four devices in each row" jq -e 'all(.choices[]; .replicas * .stages == 4)' found.json
check "auto: no slower than with a given schedule" jq -e ".choices[0].step_seconds_simulated <= $fastest" found.json
check "auto: micro-batches and groups stay" jq -e '.replicas == "auto" and .gradient_groups == 8 and all(.choices[]; .chunks == 8)' found.json
check "auto: a column for the replicas" grep -qE '^ 1 .* [124] x [124] ' "$out"
check "auto: what each number of replicas gives up" test "$(sed -n '/^the best plan with each/,/^$/p' "$out" | grep -cE '^ +[124] x [124] +\+[0-9.]+ %')" = 3
check "auto: one of them gives up nothing" test "$(grep -cE '^ +[124] x [124] +\+0\.0 %$' "$out")" = 1

# The command, as a plan on this machine: without mpirun, and simulated with the same cluster.
planned_by() { # FILE OPTION... : run the last command of the file as a plan
    read -ra command < <(grep -oE '(mpirun .*)?cgpipe train .*' "$1" | tail -n 1 | sed 's/.*cgpipe train //')
    run plan "${command[@]}" "${@:2}" --json plan.json
}
for row in 1 10; do
    run plan $model $words --devices 4 --search --replicas auto --cluster middle.json --choice $row --json found.json --plan-out plan$row.json
    check "row $row: exit code 0" exits 0
    cp "$out" table
    processes=$(jq -r ".choices[$row - 1] | if .replicas == 1 then \"\" else \"mpirun -n 4 \" end" found.json)
    check "row $row: starts with a process for each device" test "$(tail -n 1 table | grep -c "^${processes}cgpipe train ")" = 1
    check "row $row: has the groups of all rows" has " --gradient-groups 8 " table
    planned_by table --cluster middle.json
    check "row $row: the command has the plan's memory" test "$(jq '[.devices[].planned_bytes] | max' plan.json)" = "$(jq ".choices[$row - 1].planned_bytes_fullest" found.json)"
    check "row $row: the command has the plan's step" same "$(jq .step_seconds_simulated plan.json)" "$(jq ".choices[$row - 1].step_seconds_simulated" found.json)"
    check "row $row: ... and the plan's exchange" test "$(jq .exchange_added_seconds_simulated plan.json)" = "$(jq ".choices[$row - 1].exchange_added_seconds_simulated" found.json)"
    run plan --plan plan$row.json --cluster middle.json --json again.json --plan-out written.json
    check "row $row: so has the plan file" test "$code $(jq .step_seconds_simulated again.json)" = "0 $(jq .step_seconds_simulated plan.json)"
    check "row $row: which is written again the same" cmp plan$row.json written.json
done

run plan $model $words --devices 4 --search --replicas auto --explain --json found.json
check "auto: --explain" test "$code $(jq '[.tried[].replicas] | unique == [1, 2, 4]' found.json)" = "0 true"
check "auto: without costs, the exchange is not known" has "the time to add the gradients of replicas is not known (--costs, --cluster), and not counted" "$out"
check "auto: ... also in the JSON" jq -e 'all(.choices[]; .exchange_added_seconds_simulated == null)' found.json
run plan $model $words --devices 6 --search --replicas auto --json found.json
check "auto: only numbers that divide the devices" test "$(grep -cE '^ +[0-9]+ x [0-9]+ +(\+|no tried plan)' "$out") $(jq -c '[.choices[] | [.replicas, .stages]] | unique - [[2, 3], [1, 6]]' found.json)" = "2 []"
run plan $model $words --devices 8 --gradient-groups 2 --search --replicas auto --json found.json
check "auto: at most the given groups, and the others' reasons" jq -e \
    '([.choices[].replicas] | unique) == [2] and .refused == [{replicas: 1, stages: 8, reason: "--stages 8: the model has 6 layers (gpt2:layers=2,width=32,heads=2,vocab=64,seq=16)"}]' found.json
run plan $model --batch 24 --chunks 12 --devices 8 --search --replicas auto --json found.json
check "auto: as many groups as the largest number of replicas" jq -e .gradient_groups==8 found.json
run plan $model $words --devices cpu@2MiB*4 --search --replicas auto --json found.json
check "auto: limits of devices stay" jq -e '.command | contains(" --devices cpu@2MiB ")' found.json

# --- memory ---

run plan $model $words --stages 2 --replicas 2 --json two.json
limit=$(jq '[.devices[].planned_bytes] | max' two.json)
run plan $model $words --devices 4 --search --replicas auto --memory-limit "$limit" --json found.json
check "a limit: replicas that need too much" jq -e "[.refused[].replicas] == [4] and all(.choices[]; .planned_bytes_fullest <= $limit)" found.json
check "a limit: ... are in the table" grep -qE '^ +4 x 1 +no tried plan fits: the smallest needs [0-9.]+ [KM]iB$' "$out"
run plan $model $words --devices 4 --search --replicas auto --memory-limit 50K
check "no plan fits: exit code 1" exits 1
least=$(grep -oE 'memory-limit [0-9]+' "$err" | cut -d ' ' -f 2)
check "no plan fits: the least memory of all numbers of replicas" grep -qF "the least that would do is $least bytes" "$err"
planned_by "$err"
check "no plan fits: the command does" exits 0
run plan $model $words --devices 4 --search --replicas auto --memory-limit "$least"
check "the least memory is found" exits 0
run plan $model $words --devices 4 --search --replicas auto --memory-limit $((least - 1))
check "one byte less is refused" exits 1

# --- a given number of replicas ---

run plan $model $words --stages 2 --search --replicas 2 --cluster middle.json --json found.json
check "--replicas 2: exit code 0" exits 0
check "--replicas 2: devices are those of one replica" jq -e 'all(.choices[]; .replicas == 2 and .stages == 2)' found.json
check "--replicas 2: says so" has "2 replicas of 2 devices, 8 gradient groups" "$out"
check "--replicas 2: the exchange is a part of the step" jq -e '.choices[0] | .exchange_added_seconds_simulated > 0 and .run_seconds_simulated > .exchange_added_seconds_simulated' found.json
check "--replicas 2: ... and is said" grep -qE '^row 1: [0-9.]+ % of the step to add the gradients of 2 replicas$' "$out"
check "--replicas 2: a process for each device of the cluster" jq -e '.command | startswith("mpirun -n 4 cgpipe train ") and contains(" --gradient-groups 8 ")' found.json
planned_by "$out"
check "--replicas 2: the command has the plan" test "$(jq '[.devices[].planned_bytes] | max' plan.json)" = "$(jq .choices[0].planned_bytes_fullest found.json)"
run plan $model --batch 16 --devices 2 --search --replicas 2 --json found.json
check "--replicas 2: micro-batches stay" jq -e 'all(.choices[]; .chunks == 8)' found.json
check "--replicas 2: a process for each replica" jq -e '.command | startswith("mpirun -n 2 cgpipe train ")' found.json
run plan $model --batch 16 --devices 2 --search --replicas 2 --search-chunks --schedule 1f1b --json found.json
check "--replicas 2: unless --search-chunks" jq -e '[.choices[].chunks] | sort == [1, 2, 4, 8, 16]' found.json

# --- plan files ---

run plan $model $words --stages 2 --replicas 2 --balance 2,4 --plan-out two.json
check "a plan file has the replicas and the groups" test "$code $(jq -c '[.options.replicas, .options.gradient_groups, .options.stages, .devices]' two.json)" = '0 [2,8,2,["cpu:0","cpu:1"]]'
run plan $model $words --stages 2 --plan-out one.json
check "without replicas, a plan file has neither" jq -e '.options | has("replicas") or has("gradient_groups") | not' one.json
fails 2 "--plan two.json: replicas: expected 2, as planned, got 4 (leave out --replicas; or make a plan of this one: ..." plan --plan two.json --replicas 4
fails 2 "--plan one.json: replicas: expected 1, as planned, got 2 ..." plan --plan one.json --replicas 2
fails 2 "--plan two.json: gradient_groups: expected 8, as planned, got 4 (leave out --gradient-groups; ..." plan --plan two.json --gradient-groups 4
fails 2 "--plan two.json: devices: expected 2, as planned, got 3 ..." plan --plan two.json --stages 3
fails 2 "--replicas 2: expected 1 ..." check --plan two.json
jq '.options.replicas = "auto"' two.json >edited.json
fails 1 "edited.json: options.replicas: expected a number, got auto" plan --plan edited.json
jq '.options.replicas = 3' two.json >edited.json
fails 2 "replicas: expected a power of two, got 3 (2 and 4 are the nearest)" plan --plan edited.json

# --- what is refused ---

fails 2 "--replicas auto: expected --search, or a number" plan $model --replicas auto
fails 2 "--replicas auto: expected --devices N, the number of all devices" plan $model --search --replicas auto
fails 2 "--replicas auto: expected --devices N, the number of all devices" plan $model --search --replicas auto --devices cpu
fails 2 "--replicas auto: expected --devices N, the number of all devices, and no --stages" plan $model --search --replicas auto --stages 2
fails 2 "--replicas auto: expected equal --devices (as in cpu*2), got cpu and ref" plan $model --search --replicas auto --devices cpu,ref
fails 2 "--replicas auto: cannot be with numbers of --balance, which fix the number of stages (leave out one)" \
    plan $model --search --replicas auto --devices 4 --balance 3,3 --schedule 1f1b
echo '0F0,0B0' >mine.csv
fails 2 "--replicas auto: expected --schedule NAME, as mine.csv has the devices of one replica (or give --replicas R)" \
    plan $model --search --replicas auto --devices 4 --schedule mine.csv
fails 2 "replicas: expected a power of two, got 3 (2 and 4 are the nearest)" plan $model --search --replicas 3
fails 2 "replicas: expected at most the 1 gradient groups, got 2 ..." plan $model --search --replicas 2 --gradient-groups 1
fails 2 "--choice 2: 1 plan fits (a number up to 1)" plan $model --search --replicas auto --devices 1 --schedule 1f1b --choice 2 --plan-out none.json
fails 1 "middle.json: devices: expected 8 or more, ..." plan $model $words --search --replicas auto --devices 8 --cluster middle.json
jq '.devices[3].memory_bytes = 1000000' middle.json >unequal.json
run plan $model $words --search --replicas auto --devices 4 --cluster unequal.json --json found.json
check "unequal devices are for one replica" jq -e '([.choices[].replicas] | unique) == [1] and (.refused[0].reason | startswith("unequal.json: devices[3]: expected the kind, speeds and memory_bytes of devices[1]"))' found.json
finish
