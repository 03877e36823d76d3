#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_plan_search.sh SOURCE_DIR BUILD_DIR -- `cgpipe plan --search` prints a table of plans, and
# commands that train with these plans. It refuses options that cannot be combined with a search.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

model=gpt2:layers=4,width=32,heads=2,seq=16,vocab=64

# Take the last command of the output, and plan with its options instead of training.
plan_command() { # FILE
    local words
    read -ra words < <(grep -o 'cgpipe train .*' "$1")
    run plan "${words[@]:2}" --json plan.json
}

run plan $model --stages 2 --batch 8 --chunks 4 --search --memory-limit 700K --json found.json
check "search: exit code 0" exits 0
check "search: fits a page" test "$(sed '$d' "$out" | awk '{ n = length > n ? length : n } END { print n }')" -le 120
check "search: the best is first" jq -e '[.choices[].flops_simulated] | . == sort' found.json
check "search: all fit" jq -e 'all(.choices[]; .planned_bytes_fullest <= 716800)' found.json
check "search: what is given stays" jq -e 'all(.choices[]; .chunks == 4)' found.json
cp "$out" table
plan_command table
check "search: the command can be run" exits 0
# shellcheck disable=SC2016 # a variable of jq
check "search: the plan is the one found" jq -e --slurpfile plan plan.json \
    '.choices[0].planned_bytes_fullest == ([$plan[0].devices[].planned_bytes] | max)' found.json
run plan $model --stages 2 --batch 8 --chunks 4 --search --memory-limit 700K --explain --json explained.json
check "--explain: exit code 0" exits 0
check "--explain: all schedules are tried" jq -e '[.tried[].schedule] | unique | length == 17' explained.json
check "--explain: the parts of the best step are 100 %" test "$(grep -A 1 '^the step with' "$out" | sed 1d |
    tr ',' '\n' | awk '{ sum += $(NF - 1) } END { print (sum > 99.8 && sum < 100.2) }')" = 1
check "--explain: a line for each other schedule" test "$(sed -n '/^other schedules/,/^$/p' "$out" | grep -c '^  ')" = \
    "$(jq '[.tried[] | [.schedule, .virtual, .in_flight]] | unique | length - 1' explained.json)"
check "--explain: what a schedule loses" grep -qE '^  [a-z0-9-]+ +[0-9] .* \+[0-9.]+ %: .*(idle|recomputation) [+-][0-9.]+' "$out"
check "--explain: what does not fit" grep -qE '^  never  +no tried plan fits: the smallest needs [0-9.]+ KiB$' "$out"
check "--explain: what was tried is as long as the choice" jq -e '. as $x | any(.tried[]; .flops_simulated == $x.choices[0].flops_simulated)' explained.json
fails 2 "--explain: expected --search" plan $model --explain
run plan $model --stages 2 --batch 8 --search --json - --quiet
check "search: micro-batches vary without --chunks" jq -e '[.choices[].chunks] | unique | length > 1' "$out"
run plan resnet:depth=8,image=16,classes=10 --stages 2 --batch 8 --chunks 4 --search --schedule 1f1b --json - --quiet
check "search: a given schedule stays" jq -e '[.choices[].schedule] == ["1f1b"]' "$out"
run plan resnet:depth=8,image=16,classes=10 --stages 2 --batch 4 --search --schedule 1f1b --json - --quiet
check "search: a model with batch norms keeps its micro-batches" jq -e '[.choices[].chunks] == [4]' "$out"
run plan resnet:depth=8,image=16,classes=10 --stages 2 --batch 4 --search --search-chunks --schedule 1f1b --json - --quiet
check "search: --search-chunks" jq -e '[.choices[].chunks] | sort == [1, 2, 4]' "$out"
run plan $model --stages 2 --batch 8 --chunks 4 --search --schedule 1f1b --balance 4,4 --recompute always --json - --quiet
check "search: a given balance stays" jq -e '[.choices[] | .balance, .recompute] == [[4, 4], "always"]' "$out"

run plan $model --stages 3 --batch 8 --chunks 8 --search --schedule v-flex --json - --quiet
check "search: v-flex with all limits of three devices" jq -e '[.choices[].in_flight] | sort == [4, 5, 6]' "$out"
run plan $model --stages 3 --batch 8 --chunks 8 --search --in-flight 5 --json - --quiet
check "search: a given limit in flight stays" jq -e '[.choices[] | [.schedule, .in_flight]] | unique == [["v-flex", 5]]' "$out"

run profile $model --batch 4 --chunks 2 --repeats 1 --json costs.json
run plan $model --stages 2 --batch 8 --search --costs costs.json --json found.json
check "search --costs: seconds" jq -e 'all(.choices[]; .step_seconds_simulated >= .run_seconds_simulated)' found.json
check "search --costs: samples per second" has "samples/s" "$out"
plan_command "$out"
check "search --costs: the command" exits 0

run plan $model --stages 2 --batch 8 --search --memory-limit 100K
check "no plan fits: exit code 1" exits 1
check "no plan fits: the least that would do" grep -q 'no plan fits in 100.0 KiB; the least that would do is [0-9]* bytes' "$err"
cp "$err" least
plan_command least
check "no plan fits: the command does" exits 0
# One number of micro-batches in CI, all of them in .ci/nightly.
sizes="--stages 2 --batch 2 --schedule 1f1b"
if is_whole; then sizes="--stages 2 --batch 8"; fi
run plan $model $sizes --search --memory-limit 100K
limit=$(grep -o 'memory-limit [0-9]*' "$err" | cut -d ' ' -f 2)
run plan $model $sizes --search --memory-limit "$limit"
check "the least memory is found" exits 0
run plan $model $sizes --search --memory-limit $((limit - 1))
check "one byte less is refused" exits 1
run plan $model $sizes --search --search-precision --memory-limit $((limit - 1)) --json found.json
check "--search-precision: bf16 where f32 does not fit" jq -e '[.choices[].precision] | unique == ["bf16"]' found.json
plan_command "$out"
check "--search-precision: the command" exits 0
run plan $model --stages 2 --batch 8 --chunks 4 --search --search-precision --json found.json
check "--search-precision: f32 where it fits" jq -e '[.choices[].precision] | unique == ["f32"]' found.json

fails 2 "--balance time: cannot be with --search, ..." plan $model --search --balance time
fails 2 "--balance: --search needs its --schedule too, ..." plan $model --search --balance 4,4 --stages 2
fails 2 "--search-chunks: cannot be with --chunks (leave out one)" plan $model --search --search-chunks --chunks 2
fails 2 "--search-precision: cannot be with --precision (leave out one)" plan $model --search --search-precision --precision bf16
fails 2 "--search-precision: cannot be with --costs (leave out one)" plan $model --search --search-precision --costs costs.json
fails 2 "--schedule: expected a name of ..." plan $model --search --schedule zb
fails 2 "--stages 99: the model has 8 layers ..." plan $model --search --stages 99
finish
