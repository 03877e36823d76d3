#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_costs.sh SOURCE_DIR BUILD_DIR -- measure, write and read costs of layers, and find balances
# with these costs.
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
check "profile --json: all keys" keys costs.json cgpipe_costs version command date model samples threads \
    devices in_steps precision convolution peak_flops copy_bytes_per_second layers name forward_seconds input_seconds \
    weight_seconds recompute_seconds selective_seconds forward_flops update_seconds parameter_bytes saved_bytes
check "profile --json: sizes of micro-batches" jq -e '.samples == [1, 2]' costs.json
check "profile --json: a number for each" jq -e \
    'all(.layers[]; (.forward_seconds, .input_flops, .saved_bytes) | length == 2)' costs.json
check "profile --json: operations are in proportion" jq -e 'all(.layers[]; .weight_flops | .[1] == 2 * .[0])' costs.json
check "profile --json: an update of what has parameters" jq -e 'all(.layers[]; (.update_seconds > 0) == (.parameter_bytes > 0))' costs.json
check "profile: rates of each size" test "$(grep -cE '^micro-batches of [12] +[0-9.]+ samples/s' "$out")" -eq 2
check "profile: in training steps" has "measured     in training steps" "$out"
run profile $costed --batch 16 --repeats 1 --devices 2 --optimizer sgd --momentum 0.9 --json sizes.json
check "profile --devices: two at once" has "measured     in training steps, 2 devices at once" "$out"
check "profile: three sizes" jq -e '.samples == [1, 4, 16] and .devices == 2 and .in_steps' sizes.json
check "profile --json: the command" jq -re '.command | test("--devices cpu.2 .*--optimizer sgd --momentum 0.9 --dropout 0$")' sizes.json
run profile $costed --batch 1 --repeats 1 --json one.json
check "profile: one size" jq -e '.samples == [1] and (.layers[0].forward_seconds | length) == 1' one.json
fails 2 "--momentum: expected --optimizer sgd or rmsprop, got adamw" profile $costed --momentum 0.9
check "profile --json: the model in full" has "$costed" <(sed 's/,vocab=64,seq=16/,seq=16,vocab=64/' costs.json)
check "profile --json: the peak that was given" jq -e '.peak_flops == 5e10' costs.json
run profile $costed --batch 4 --chunks 2 --repeats 1 --json without.json
check "profile without --peak: rates" test "$(awk '$1 == "layer" { print $8 }' "$out")" = GFLOP/s
check "profile without --peak: of each layer with operations" \
    test "$(grep -cE '^(h\.[0-2]|lm_head|all) ( *[0-9.]+){7} +[0-9.]+ [KMGT]?i?B' "$out")" -eq 5
check "profile without --peak: none is told" sh -c '! grep -q peak "$1"' sh "$out"
check "profile without --peak: null in JSON" test "$(jq .peak_flops without.json)" = null

# --- balances ---

# In one file, make the first layer by far the most expensive. In another file, make the last layer
# the most expensive.
dearest() { jq ".layers[$1].forward_seconds = [1000, 1000]" costs.json >"dearest$1.json"; }
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
    cmp -s flops.txt <(grep -v ' available$' "$out") # free memory changes between runs
# With vocabulary 4096 and width 32, nearly all parameters are in the first and the last layer.
run plan gpt2:layers=3,width=32,heads=2,seq=1,vocab=4096 --stages 3 --balance size --batch 1
check "plan --balance size: parameters" has "balance 2,4,1" "$out"
run train $model --data text.txt --batch 4 --steps 3 --stages 2 --balance time --sample 0
check "train --balance time" exits 0
run train --resume --steps 5
check "train --resume measures again" exits 0

# --- costs of a run ---

run bench gpt2 --model $costed --stages 2 --batch 4 --chunks 2 --steps 4 --dropout 0 --costs-out run.json --json bench.json
check "bench --costs-out" exits 0
cp "$out" bench.txt; bench_out=bench.txt
check "bench --costs-out: of its micro-batches" jq -e '.samples == [2]' run.json
check "bench --costs-out: every layer runs forward and backward" test "$(
    jq '[.layers[] | select(.forward_seconds[0] > 0)] | length' run.json)" -ge 6
check "bench --costs-out: the layers take no longer than the step" jq -en \
    --slurpfile run run.json --slurpfile bench bench.json \
    '[$run[0].layers[] | .forward_seconds[0] + .input_seconds[0] + .weight_seconds[0]] | add < $bench[0].run_seconds'
run plan $costed --stages 2 --batch 4 --chunks 2 --schedule zb-v --costs run.json --json plan.json
check "plan --costs: the simulated step" has "simulated step 0." "$out"
check "plan --costs: as JSON" jq -e \
    '.run_seconds_simulated > 0 and .bubble_simulated > 0 and .bubble_simulated < 1' plan.json
check "bench --costs-out: simulated beside measured" grep -qE "^planned +[0-9.]+ s a step without the optimizer \(costs of this run\), measured [0-9.]+ s \([+-][0-9.]+ %\)$" "$bench_out"
run bench gpt2 --model $costed --stages 2 --batch 4 --chunks 2 --steps 2 --dropout 0 --costs run.json --json bench.json
check "bench --costs: simulated beside measured" grep -qE "^planned .*\(costs of run.json\), measured" "$out"
check "bench --costs: as JSON" jq -e '.run_seconds_simulated > 0' bench.json
run train $model --data text.txt --batch 4 --steps 2 --stages 2 --balance time --costs run.json --run costed --sample 0
check "train --costs: costs of a model of another size" exits 0
check "train --costs: simulated beside measured" grep -qE "^planned .*\(costs of run.json\), measured" "$out"
run train $model --data text.txt --batch 4 --chunks 2 --steps 2 --stages 2 --costs-out trained.json --run measured --sample 0
check "train --costs-out: simulated beside measured" grep -qE "^planned .*\(costs of this run\), measured" "$out"
check "train --costs-out: the command" jq -e '.command | startswith("cgpipe train gpt2:layers=1")' trained.json
run plan "$(jq -r .model trained.json)" --stages 2 --batch 8 --chunks 4 --costs trained.json
check "train --costs-out: another plan of the model" has "(costs of trained.json)" "$out"
fails 1 "none/costs.json: cannot be written (none/: No such file or directory)" train $model --data text.txt --steps 1 --costs-out none/costs.json --run unwritten
check "train --costs-out: refused before the run" test ! -e unwritten
fails 2 "--costs-out: expected one run to measure, got --plan-only" \
    bench gpt2 --model $costed --plan-only --costs-out run.json
fails 1 "none/run.json: ..." bench gpt2 --model $costed --steps 3 --batch 4 --costs-out none/run.json

run bench gpt2 --model $costed --stages 2 --batch 4 --chunks 2 --steps 4 --dropout 0 --ops --json bench.json
check "bench --ops" exits 0
check "bench --ops: kinds of ops and the update" bash -c 'grep -q "^linear " "$1" && grep -q "^update " "$1" && grep -q "^waiting" "$1"' - "$out"
check "bench --ops: kernels and update take no longer than two devices" jq -e \
    '([.ops[] | .forward_seconds + .input_seconds + .weight_seconds] | add) + 2 * .update_seconds < 2.2 * .step_seconds' bench.json
check "bench --ops: operations are those of the step" jq -e \
    '(([.ops[] | select(.op != "cross_entropy").flops] | add) / .flops_per_step - 1 | fabs) < 1e-9 and all(.ops[]; .bytes > 0)' bench.json
fails 2 "--ops: expected one run to measure, got --grid" bench gpt2 --grid --ops

# --- several micro-batch sizes ---

# With one stage, the time of a step is the sum of the layers' times. In this file, the forward of
# each layer takes 1, 2 and 14 s for micro-batches of 1, 4 and 16 samples. The update of each layer
# takes 0.5 s, and nothing else takes time.
jq '.layers[] |= (.forward_seconds = [1, 2, 14] | .input_seconds = [0, 0, 0] | .weight_seconds = [0, 0, 0] | .update_seconds = 0.5)' \
    sizes.json >line.json
for case in 1:7 2:9.333 4:14 8:42 16:98 32:210; do
    run plan $costed --batch "${case%:*}" --chunks 1 --costs line.json --json plan.json
    check "plan --costs: a micro-batch of ${case%:*}" jq -e \
        "(.run_seconds_simulated - ${case#*:} | fabs) < 0.001 and (.step_seconds_simulated - ${case#*:} - 3.5 | fabs) < 0.001" plan.json
done
check "plan --costs: with the update" has "simulated step 210.0000 s without the optimizer, 213.5000 s with it, bubble" "$out"
# Old costs files contain times for only one micro-batch size, and no times for the update. With
# such a file, times for other sizes are proportional to the size.
jq 'del(.cgpipe_costs) | .samples = 4 | .layers[] |= (del(.update_seconds) | with_entries(.value |= if type == "array" then .[1] else . end))' \
    line.json >old.json
run plan $costed --batch 16 --chunks 2 --costs old.json --json plan.json
check "plan --costs: an older file" jq -e '.run_seconds_simulated == 56 and .step_seconds_simulated == null' plan.json
check "plan --costs: without the update" has "simulated step 56.0000 s without the optimizer, bubble" "$out"
# In this file, the first layer is the most expensive for micro-batches of 1 sample, and the last
# layer for larger micro-batches.
jq '.layers[0].forward_seconds = [100, 100, 100] | .layers[6].forward_seconds = [1, 50, 1000]' line.json >crossing.json
run plan $costed --stages 2 --batch 16 --chunks 16 --balance time --costs crossing.json
check "plan --balance time: by the times of micro-batches of one" has "balance 1,6" "$out"
run plan $costed --stages 2 --batch 32 --chunks 2 --balance time --costs crossing.json
check "plan --balance time: by those of sixteen" has "balance 6,1" "$out"

# --- costs of a model of another size ---

# In this file, forward takes 1 s in each embedding layer, 10 s in a block (the mean of three), and
# 100 s in each layer after the blocks. The update of each layer takes 2 s.
jq '.samples = [1] | .layers[] |= with_entries(.value |= if type == "array" then .[:1] else . end)
    | .layers[] |= (.input_seconds = [0] | .weight_seconds = [0] | .recompute_seconds = [0] | .update_seconds = 2)
    | .layers[:2][].forward_seconds = [1] | .layers[5:][].forward_seconds = [100]
    | .layers[2].forward_seconds = [5] | .layers[3].forward_seconds = [10] | .layers[4].forward_seconds = [15]' costs.json >small.json
run plan gpt2:layers=6,width=32,heads=2,seq=16,vocab=64 --batch 1 --chunks 1 --costs small.json --json plan.json
check "plan --costs: blocks of another depth" jq -e '.run_seconds_simulated == 262 and .step_seconds_simulated == 282' plan.json
check "plan --costs: is said" has "costs: 7 layers measured on $(jq -r .model small.json) are used for this model's 10 layers; the times of 0 are scaled by FLOPs" "$out"
check "plan --costs: is said in JSON" jq -e '.costs_reused | test("are used for this model.s 10 layers")' plan.json
# This model has twice the vocabulary. So only the embedding and the head differ from the measured
# layers, and the head needs twice the FLOPs.
run plan gpt2:layers=3,width=32,heads=2,seq=16,vocab=128 --batch 1 --chunks 1 --costs small.json --json plan.json
check "plan --costs: scaled by FLOPs" jq -e '(.run_seconds_simulated - 332 | fabs) < 1' plan.json
check "plan --costs: what is scaled is said" has "are used for this model's 7 layers; the times of 2 are scaled by FLOPs" "$out"
run bench gpt2:layers=4,width=32,heads=2,seq=16,vocab=64 --stages 2 --balance time --costs small.json --batch 2 --steps 2
check "bench --balance time: a warning" grep -q "warning: small.json: 7 layers measured on" "$err"
run plan gpt2:layers=4,width=32,heads=2,seq=16,vocab=64 --stages 2 --batch 2 --chunks 2 --costs small.json --search
check "search --costs: a warning" grep -q "warning: small.json: 7 layers measured on" "$err"
jq '.layers[2:5][].name |= "block" + .' small.json >other.json
fails 1 "other.json: layer h.0: expected the costs of a layer with such a name, got those of gpt2:..." \
    plan gpt2:layers=6,width=32,heads=2,seq=16,vocab=64 --costs other.json

# --- files that are not costs ---

fails 1 "costs.json: expected the costs of llama:layers=..." plan llama:layers=2,width=32,heads=2,seq=16,vocab=64 --balance time --costs costs.json
jq 'del(.layers[3])' costs.json >short.json
fails 1 "short.json: expected 7 layers, got 6" \
    plan $costed --balance time --costs short.json
jq '.layers[2].input_seconds = [1, -1]' costs.json >negative.json
fails 1 "negative.json: layer 2: input_seconds: expected a number >= 0 for each of samples" \
    plan $costed --balance time --costs negative.json
jq '.layers[2].input_seconds = null' costs.json >null.json
fails 1 "null.json: layer 2: input_seconds: ..." plan $costed --balance time --costs null.json
jq '.layers[2].input_seconds = [1]' costs.json >few.json
fails 1 "few.json: layer 2: input_seconds: expected a number >= 0 for each of samples" plan $costed --balance time --costs few.json
jq '.layers[2].update_seconds = -1' costs.json >update.json
fails 1 "update.json: layer 2: update_seconds: expected a number >= 0" plan $costed --balance time --costs update.json
for type in '.layers[2].update_seconds = "0.5"' '.layers[2].update_seconds = null' '.layers[2].parameter_bytes = "x"' \
    '.layers[2].parameter_bytes = null' '.copy_bytes_per_second = -1' '.copy_bytes_per_second = [null]'; do
    key=${type% = *} layer=
    [[ $key != .layers* ]] || layer="layer 2: "
    jq "$type" costs.json >type.json
    fails 1 "type.json: $layer${key##*.}: expected a number >= 0" plan $costed --balance time --costs type.json
done
jq '.convolution = 7' costs.json >type.json
fails 1 "type.json: convolution: expected a text" plan $costed --balance time --costs type.json
for samples in '[]' '[2, 1]' '[1, 1]' '[0, 1]' '[1, 2.5]' '"1"' 'null' "[$(seq -s, 1 17)]"; do
    jq ".samples = $samples" costs.json >samples.json
    fails 1 "samples.json: samples: expected 1 to 16 sizes of micro-batches that ascend from 1 or more" \
        plan $costed --balance time --costs samples.json
done
jq '.cgpipe_costs = 3' costs.json >newer.json
fails 1 "newer.json: cgpipe_costs: expected 2, the version of costs files that this cgpipe reads" \
    plan $costed --balance time --costs newer.json
echo '[1, 2' >broken.json
fails 1 "broken.json: ..." plan $costed --balance time --costs broken.json
echo '[]' >list.json
fails 1 "list.json: expected the costs of ..." plan $costed --balance time --costs list.json
fails 1 'costs.json: expected costs in bf16, got "f32" (--precision f32, or a profile of that precision)' \
    plan $costed --balance time --costs costs.json --precision bf16
fails 1 'costs.json: expected costs of winograd convolutions, got "direct" (--convolution direct, or a profile of those)' \
    plan $costed --balance time --costs costs.json --convolution winograd
fails 1 "costs.json: frozen: expected costs with the plan's 1 frozen parameters, got 0 (the same --freeze for both)" \
    plan $costed --balance time --costs costs.json --freeze transformer.wpe.weight
run profile $costed --batch 1 --repeats 1 --freeze transformer.wpe.weight --json frozen.json
check "profile --freeze: the names" jq -e '.frozen == ["transformer.wpe.weight"]' frozen.json
fails 1 "frozen.json: frozen: expected costs with the plan's 1 frozen parameters, got 1 others (the same --freeze for both)" \
    plan $costed --balance time --costs frozen.json --freeze transformer.wte.weight
run plan $costed --balance time --costs frozen.json --freeze transformer.wpe.weight
check "plan --freeze with its costs" exits 0
jq 'del(.convolution)' costs.json >older.json
run plan $costed --balance time --costs older.json
check "costs of an older cgpipe are of direct convolutions" exits 0
fails 1 "missing.json: ..." plan $costed --balance time --costs missing.json

# --- calibrated by a run ---

bytes=${costed/vocab=64/vocab=256}
trained="--batch 8 --chunks 4 --stages 2"
run train $bytes --data "$work/files/text.txt" $trained --steps 7 --run r --quiet
check "a run to calibrate by" exits 0
median=$(jq -s '[.[2:][].seconds] | sort | .[length / 2 | floor]' r/metrics.jsonl)
run plan $bytes $trained --tflops 1e-4 --memory-bandwidth 1 --calibrate r --json calibrated.json
check "calibrate: exit code 0" exits 0
check "calibrate: the median without the first two steps" \
    jq -e --argjson m "$median" '.calibration | .measured_seconds == $m and .steps == 5 and .run == "r"' calibrated.json
check "calibrate: the run's plan takes the measured step" \
    jq -e --argjson m "$median" '(.step_seconds_simulated / $m - 1) | fabs < 1e-4' calibrated.json
check "calibrate: a factor of layer times" \
    jq -e '(.calibration | .factor * .simulated_seconds / .measured_seconds - 1) | fabs < 1e-4' calibrated.json
check "calibrate: told" grep -q '^calibrated by r: a step took .* (median of 5), .* simulated; layer times are multiplied by ' "$out"
run plan $bytes --batch 8 --chunks 2 --tflops 1e-4 --json plain.json
run plan $bytes --batch 8 --chunks 2 --tflops 1e-4 --calibrate r --json other.json
check "calibrate: another plan is multiplied alike" \
    jq -es '(.[1].run_seconds_simulated / .[0].run_seconds_simulated / .[1].calibration.factor - 1) | fabs < 1e-4' plain.json other.json
run plan $bytes $trained --tflops 1e-4 --calibrate r --search --json search.json
check "calibrate: a search" jq -e '.calibration.steps == 5' search.json
run train --resume --run r --steps 9 --batch 4 --new-data --data "$work/files/text.txt" --quiet
run plan $bytes --tflops 1e-4 --calibrate r --json resumed.json
check "calibrate: steps of the last start" jq -e '.calibration.steps == 2' resumed.json
fails 2 "--calibrate r: expected --costs, --tflops or --cluster, whose layer times it multiplies" plan $bytes --calibrate r
fails 1 "run directory none: no such directory" plan $bytes --tflops 1 --calibrate none
cp -r r cut
: >cut/metrics.jsonl
fails 1 "cut/metrics.jsonl: expected the seconds of steps after step 7" plan $bytes --tflops 1 --calibrate cut
echo '{"step": 8, "seconds": ' >>cut/metrics.jsonl
fails 1 "cut/metrics.jsonl: ..." plan $bytes --tflops 1 --calibrate cut
rm cut/metrics.jsonl
ln -s ../r/metrics.jsonl cut/metrics.jsonl
fails 1 "cut/metrics.jsonl: is a link, ..." plan $bytes --tflops 1 --calibrate cut
rm cut/metrics.jsonl
fails 1 "cut/metrics.jsonl: cannot be read (no such file)" plan $bytes --tflops 1 --calibrate cut

finish
