#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_costs.sh SOURCE_DIR BUILD_DIR -- costs of layers: measured, written, read, balanced by.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

costed=gpt2:layers=3,width=32,heads=2,seq=16,vocab=64

run profile $costed --batch 4 --chunks 2 --repeats 2 --peak 50 --json costs.json
check "profile: exit code 0" exits 0
check "profile: a row for each layer and one for all" \
    test "$(grep -cE '^(wte|wpe|h\.[0-2]|ln_f|lm_head|all) .* [0-9.]+ [KMGT]?i?B$' "$out")" -eq 8
check "profile: the peak that was given" has "peak         50.0 GFLOP/s a core" "$out"
check "profile: shares of it" test "$(awk '$1 == "layer" { print $8 " " $9 }' "$out")" = "peak %"
check "profile: fits a page" test "$(widest "$out")" -le 120
check "profile --json: all keys" keys costs.json version command date model samples threads \
    precision peak_flops copy_bytes_per_second layers name forward_seconds input_seconds \
    weight_seconds recompute_seconds selective_seconds forward_flops parameter_bytes saved_bytes
check "profile --json: samples of a micro-batch" test "$(value samples costs.json)" = 2
check "profile --json: the model in full" has "$costed" <(sed 's/,vocab=64,seq=16/,seq=16,vocab=64/' costs.json)
check "profile --json: the peak that was given" jq -e '.peak_flops == 5e10' costs.json
run profile $costed --batch 4 --chunks 2 --repeats 1 --json without.json
check "profile without --peak: rates" test "$(awk '$1 == "layer" { print $8 }' "$out")" = GFLOP/s
check "profile without --peak: of each layer with operations" \
    test "$(grep -cE '^(h\.[0-2]|lm_head|all) ( *[0-9.]+){7} +[0-9.]+ [KMGT]?i?B' "$out")" -eq 5
check "profile without --peak: none is told" sh -c '! grep -q peak "$1"' sh "$out"
check "profile without --peak: null in JSON" test "$(jq .peak_flops without.json)" = null

# --- balances ---

# The first layer is made the dearest by far, then the last.
dearest() { jq ".layers[$1].forward_seconds = 1000" costs.json >"dearest$1.json"; }
dearest 0
dearest 6
for i in 0:1,6 6:6,1; do
    run plan $costed --stages 2 --balance time --costs "dearest${i%:*}.json" --json plan.json
    check "plan --balance time: layer ${i%:*} is alone" has "balance ${i#*:}" "$out"
done
run plan $costed --stages 2 --balance time
check "plan --balance time measures without --costs" exits 0
run plan $costed --balance time --costs costs.json --stages 3 --recompute always
check "plan --balance time with recomputation" exits 0
run plan $costed --stages 2 --balance flops
grep -v ' available$' "$out" >flops.txt
run plan $costed --stages 2
check "plan: by FLOPs unless told otherwise" \
    cmp -s flops.txt <(grep -v ' available$' "$out") # free memory changes by itself
# vocabulary 4096 and width 32: nearly all parameters are in the first and the last layer
run plan gpt2:layers=3,width=32,heads=2,seq=1,vocab=4096 --stages 3 --balance size --batch 1
check "plan --balance size: parameters" has "balance 1,5,1" "$out"
run train $model --data text.txt --batch 4 --steps 3 --stages 2 --balance time --sample 0
check "train --balance time" exits 0
run train --resume --steps 5
check "train --resume measures again" exits 0

# --- costs of a run ---

run bench gpt2 --model $costed --stages 2 --batch 4 --chunks 2 --steps 4 --dropout 0 --costs-out run.json --json bench.json
check "bench --costs-out" exits 0
check "bench --costs-out: of its micro-batches" test "$(jq .samples run.json)" -eq 2
check "bench --costs-out: every layer runs forward and backward" test "$(
    jq '[.layers[] | select(.forward_seconds > 0)] | length' run.json)" -ge 6
check "bench --costs-out: the layers take no longer than the step" jq -en \
    --slurpfile run run.json --slurpfile bench bench.json \
    '[$run[0].layers[] | .forward_seconds + .input_seconds + .weight_seconds] | add < $bench[0].run_seconds'
run plan $costed --stages 2 --batch 4 --chunks 2 --schedule zb-v --costs run.json --json plan.json
check "plan --costs: the simulated step" has "simulated step 0." "$out"
check "plan --costs: as JSON" jq -e \
    '.run_seconds_simulated > 0 and .bubble_simulated > 0 and .bubble_simulated < 1' plan.json
fails 2 "--costs-out: expected one run to measure, got --plan-only" \
    bench gpt2 --model $costed --plan-only --costs-out run.json
fails 1 "none/run.json: ..." bench gpt2 --model $costed --steps 3 --batch 4 --costs-out none/run.json

# --- files that are not costs ---

fails 1 "costs.json: expected the costs of gpt2:layers=4,..." \
    plan gpt2:layers=4,width=32,heads=2,seq=16,vocab=64 --balance time --costs costs.json
jq 'del(.layers[3])' costs.json >short.json
fails 1 "short.json: expected samples >= 1 and 7 layers, got 2 and 6" \
    plan $costed --balance time --costs short.json
jq '.layers[2].input_seconds = -1' costs.json >negative.json
fails 1 "negative.json: layer 2: input_seconds: expected a number >= 0" \
    plan $costed --balance time --costs negative.json
jq '.layers[2].input_seconds = null' costs.json >null.json
fails 1 "null.json: layer 2: input_seconds: ..." plan $costed --balance time --costs null.json
echo '[1, 2' >broken.json
fails 1 "broken.json: ..." plan $costed --balance time --costs broken.json
echo '[]' >list.json
fails 1 "list.json: expected the costs of ..." plan $costed --balance time --costs list.json
fails 1 'costs.json: expected costs in bf16, got "f32" (--precision f32, or a profile of that precision)' \
    plan $costed --balance time --costs costs.json --precision bf16
fails 1 "missing.json: ..." plan $costed --balance time --costs missing.json

finish
