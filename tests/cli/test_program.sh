#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_program.sh SOURCE_DIR BUILD_DIR -- a user's view of the program: help, usage errors, and
# every command.
#
# After a failure, cgpipe prints one clear line on standard error, exits with code 2 (usage) or 1,
# and leaves no half-written file.
source "$(dirname "$0")/support.sh"

small="--batch 8 --steps 4"

# --- help ---

run --version
check "--version prints name and version" test "$(cat "$out")" = "cgpipe 0.1.0"
for words in help --help; do
    run $words
    check "$words: exit code 0" exits 0
    check "$words: nothing on stderr" empty "$err"
    for command in train supervise stop diagnose sample config tokenize convert devices plan profile check bench schedule; do
        check "$words names $command" has "cgpipe $command" "$out"
    done
done
for command in train supervise stop diagnose sample config tokenize convert devices plan profile check bench schedule; do
    run help "$command"
    cp "$out" help.txt
    run "$command" --help
    check "$command --help: exit code 0" exits 0
    check "$command --help is help $command" cmp -s "$out" help.txt
    check "$command --help lists its options" has "  --help  " "$out"
    check "$command --help fits a page" test "$(widest "$out")" -le 100
done

# --- usage ---

fails 2 "expected a command (cgpipe help)"
fails 2 "trian: unknown command (did you mean train?)" trian
fails 2 "--frobnicate: unknown option (cgpipe help)" --frobnicate
fails 2 "xyzzy: unknown command (cgpipe help)" help xyzzy
fails 2 "train: MODEL is missing ..." train
fails 2 "train: --data is missing ..." train $model
fails 2 "sample: RUN is missing ..." sample
fails 2 "tokenize: --tokenizer PATH is missing ..." tokenize
fails 2 "convert: FROM is missing (cgpipe convert FROM TO)" convert
fails 2 "plan: MODEL is missing ..." plan
fails 2 "profile: MODEL is missing ..." profile
fails 2 "schedule: NAME is missing ..." schedule
fails 2 "--shedule: unknown option (did you mean --schedule?)" train $model --shedule gpipe
fails 2 "--shedule: unknown option (did you mean --schedule?)" plan $model --shedule=gpipe
fails 2 "-s: unknown option" plan $model -s 2
fails 2 "virtual: expected 1 as 1f1b has 1 on each device, got 2" plan $model --virtual 2
fails 2 "--stages: needs a value" plan $model --stages
fails 2 "--overwrite: takes no value" train $model --overwrite=yes
fails 2 "surprise: unexpected argument after $model" plan $model surprise
fails 2 "gpt: unknown model (did you mean gpt2?)" bench gpt

fails 2 '--chunks abc: expected a whole number >= 1, got "abc"' plan $model --chunks abc
fails 2 '--chunks 0: expected a whole number >= 1, got "0"' plan $model --chunks 0
fails 2 '--chunks -1: expected a whole number >= 1, got "-1"' plan $model --chunks -1
fails 2 '--chunks 2.5: expected a whole number >= 1, got "2.5"' plan $model --chunks 2.5
fails 2 '--chunks : expected a whole number >= 1, got ""' plan $model --chunks ""
fails 2 '--chunks 99999999999: expected at most 2147483647' plan $model --chunks 99999999999
fails 2 '--batch 1e3: expected a whole number >= 1, got "1e3"' plan $model --batch 1e3
fails 2 '--seed x: expected a whole number >= 0, got "x"' plan $model --seed x
fails 2 '--dropout 1: expected a number >= 0 and < 1, got "1"' plan $model --dropout 1
fails 2 '--lr nan: expected a number >= 0, got "nan"' plan $model --lr nan
fails 2 '--lr 1x: expected a number >= 0, got "1x"' plan $model --lr 1x
fails 2 '--memory-limit 12Q: expected a whole number >= 1, ...' plan $model --memory-limit 12Q
fails 2 '--memory-limit 99999999999999G: expected ...' \
    plan $model --memory-limit 99999999999999G
counts="expected whole numbers >= 1 with commas between, or flops, time or size"
fails 2 "--balance 2,,3: $counts, got \"2,,3\"" plan $model --balance 2,,3
fails 2 "--balance tine: $counts, got \"tine\" (did you mean time?)" plan $model --balance tine
fails 2 "--costs: expected --balance time" train $model --data random --costs costs.json
fails 1 "costs.json: cannot be read (No such file or directory)" plan $model --costs costs.json
fails 1 "costs.json: ..." plan $model --balance time --costs costs.json
fails 2 '--balance 2,0,3: expected ...' plan $model --balance 2,0,3
fails 2 "--balance: expected 2 numbers, one a stage, got 3" \
    plan $model --stages 2 --balance 2,2,1
fails 2 "balance: sums to 4 but the model has 5 layers (balance: 2 2)" plan $model --balance 2,2
fails 2 "--stages 9: the model has 5 layers ..." plan $model --stages 9
fails 2 '--schedule: expected a name of `cgpipe schedule --list`, got "1f1c" (did you mean 1f1b?)' \
    plan $model --schedule 1f1c
fails 2 '--schedule: expected one with a backward to train with, got "forward-only" (gpipe or 1f1b)' \
    plan $model --schedule forward-only
fails 2 'virtual: expected 2 as zb-v has 2 on each device, got 3' \
    plan $model --schedule zb-v --virtual 3
fails 2 'stages: expected at most 5 (the number of layers) on all devices, got 6 on 3' \
    plan $model --schedule interleaved --stages 3
fails 2 'group: expected none as 1f1b has no groups, got 2 (interleaved has)' \
    plan $model --group 2
fails 1 "missing.csv: cannot be read (No such file or directory)" plan $model --schedule missing.csv
fails 2 'recompute: expected never, always or except_last, with or without +selective, or budget, got "nevr" (did you mean never?)' \
    plan $model --recompute nevr
fails 2 'precision: expected f32, tf32 or bf16, got "bf61" (did you mean bf16?)' \
    plan $model --precision bf61
fails 2 'precision: expected devices that multiply in tf32, such as cuda:0, got cpu (f32 or bf16 there)' \
    plan $model --precision tf32
fails 2 'precision: expected devices that multiply in tf32, such as cuda:0, got ref (f32 or bf16 there)' \
    profile $model --devices ref --precision tf32
fails 2 'convolution: expected direct or winograd, got "winogard" (did you mean winograd?)' \
    plan $model --convolution winogard
fails 2 'optimizer: expected sgd, adamw, adam or rmsprop, got "adamx" (did you mean adamw?)' \
    plan $model --optimizer adamx
fails 2 "--momentum: expected --optimizer sgd or rmsprop, got adamw" plan $model --momentum 0.9
fails 2 "--alpha: expected --optimizer rmsprop, got adam" plan $model --optimizer adam --alpha 0.9
fails 2 "--beta1: expected --optimizer adamw or adam, got sgd" \
    plan $model --optimizer sgd --beta1 0.9
fails 2 "--beta2: expected --optimizer adamw or adam, got rmsprop" \
    plan $model --optimizer rmsprop --beta2 0.9
fails 2 "--eps: expected --optimizer adamw or adam or rmsprop, got sgd" \
    plan $model --optimizer sgd --eps 1e-8
fails 2 "--nesterov: expected --optimizer sgd, got rmsprop" \
    plan $model --optimizer rmsprop --nesterov
fails 2 "optimizer: nesterov needs momentum above 0, got 0" \
    plan $model --optimizer sgd --momentum 0 --nesterov
fails 2 '--beta1 1: expected a number >= 0 and < 1, got "1"' plan $model --beta1 1
fails 2 '--beta2 -0.1: expected a number >= 0 and < 1, got "-0.1"' plan $model --beta2 -0.1
fails 2 '--alpha x: expected a number >= 0 and < 1, got "x"' plan $model --alpha x
fails 2 "optimizer: eps is expected in [1e-45, inf), got 0" plan $model --eps 0
fails 2 '--clip -1: expected a number >= 0, got "-1"' plan $model --clip -1
fails 2 '--warmup -1: expected a whole number >= 0 of steps, or of epochs (4ep), got "-1"' plan $model --warmup -1
fails 2 'lr schedule: expected constant, cosine, step or milestones, got "cosin" ...' \
    plan $model --lr-schedule cosin
fails 2 "--min-lr-ratio: expected --lr-schedule cosine, got constant" plan $model --min-lr-ratio 0
fails 2 "--lr-step-size: expected --lr-schedule step, got cosine" \
    plan $model --lr-schedule cosine --lr-step-size 5
fails 2 "--lr-gamma: expected --lr-schedule step or milestones, got constant" plan $model --lr-gamma 2
fails 2 "--lr-schedule step: needs --lr-step-size N" plan $model --lr-schedule step
fails 2 '--lr-step-size 0: expected a whole number >= 1, got "0"' \
    plan $model --lr-schedule step --lr-step-size 0
fails 2 "lr schedule: gamma ..." \
    plan $model --lr-schedule step --lr-step-size 5 --lr-gamma 0
fails 2 "lr schedule: min_ratio ..." plan $model --lr-schedule cosine --min-lr-ratio 1.5
fails 2 "--warmup 300: expected fewer than the 300 --steps with cosine" \
    plan $model --lr-schedule cosine --warmup 300
fails 2 "--decay-all: takes no value" plan $model --decay-all=yes
fails 2 "device: expected cpu..." plan $model --devices gpu
fails 2 "--devices: expected one name for all, or ..." \
    plan $model --devices cpu,cpu,cpu --stages 2
fails 2 "resnt101: unknown model (did you mean resnet?)" plan resnt101
fails 2 "vgg: unknown model (models: gpt2 resnet amoebanetd unet llama vit)" plan vgg
fails 2 "resnet: depth: expected 18, 34, 50, 101 or 152, or 6 n + 2 ..." plan resnet21
fails 2 "amoebanetd: L: expected a multiple of 3, got 4" plan amoebanetd:L=4
fails 2 "unet: image: expected at least 64 for depth=5, got 32 ..." plan unet:image=32
fails 2 "--dropout 0.1: resnet has none (leave it out)" plan resnet20 --dropout 0.1
fails 1 '--data random: gives tokens, expected f32 [192, 192, 3], the input "images" of unet ...' \
    train unet --data random
fails 2 "bench: MODEL is missing ..." bench
fails 2 "vgg: unknown model ..." bench vgg
fails 2 "surprise: unexpected argument after resnet20" bench resnet20 surprise
fails 2 "--model: expected bench gpt2, got bench resnet20 (leave it out)" bench resnet20 --model gpt2
fails 2 "gpt3: unknown model (did you mean gpt2?)" plan gpt3:layers=1
fails 2 "gpt2: layrs: unknown key (did you mean layers?)" plan gpt2:layrs=1
fails 2 "gpt2: layers: expected a whole number ..." plan gpt2:layers=two
fails 2 "gpt2: heads: expected a divisor of the width, ..." plan gpt2:width=100
fails 2 "gpt2: tied: expected a whole number from 0 to 1, ..." plan $model,tied=2
fails 2 "--resume: unknown option" plan $model --resume
fails 2 "--stages: cannot be with --grid, which varies it ..." bench gpt2 --grid --stages 2
fails 2 'schedule: expected a name of `cgpipe schedule --list`, got "gpip" (did you mean gpipe?)' \
    schedule gpip
fails 2 "virtual: expected 2 as zb-v has 2 on each device, got 3" schedule zb-v --virtual 3
fails 2 "in_flight: expected 4 (v-min's peak) to 8 (zb-v's) half stages on 4 devices, got 9" \
    schedule v-flex --in-flight 9
fails 2 "in_flight: expected none as zb-v has no such limit, got 6 (v-flex has)" \
    schedule zb-v --in-flight 6
fails 2 "group: expected 4 (stages per round) to 8 (micro-batches), got 3" \
    schedule interleaved --chunks 8 --group 3
fails 2 "dualpipe-v: expected at least 2 micro-batches per device, 8, got 7 (zb-v takes fewer)" \
    schedule dualpipe-v --chunks 7
fails 2 "--check: expected no NAME beside the file, got zb-v" schedule zb-v --check x.csv
fails 2 "--check: the file determines ..." schedule --check x.csv --stages 2
fails 2 "--csv, --csv-transfers, --svg, --trace-json, --json: expected one of ..." \
    schedule zb-v --csv --json -
fails 1 "x.csv: cannot be read (No such file or directory)" schedule --check x.csv
fails 2 '--stages 0: expected a whole number >= 1, got "0"' schedule gpipe --stages 0
fails 2 '--latency -1: expected a number >= 0, got "-1"' schedule gpipe --latency -1

# --- bad input to train: no directory is made ---

fails 2 "gpt2: layrs: unknown key (did you mean layers?)" train gpt2:layrs=1 --data text.txt
fails 2 "balance: sums to 4 ..." train $model --data text.txt --balance 2,2
fails 2 "--stages 6: the model has 5 layers ..." train $model --data text.txt --stages 6
fails 2 '--chunks 0: expected a whole number >= 1, got "0"' \
    train $model --data text.txt --chunks 0
fails 2 "gpt2: vocab: expected at least 256 for bytes, got 100" \
    train $model,vocab=100 --data text.txt
fails 2 "--prompt : expected ..." train $model --data text.txt --sample 3 --prompt ""
fails 2 "--run : expected ..." train $model --data text.txt --run ""
fails 2 '--save-every x: expected a whole number >= 0 of steps, or of epochs (4ep), got "x"' \
    train $model --data text.txt --save-every x
fails 2 '--keep -1: expected a whole number >= 0, got "-1"' \
    train $model --data text.txt --keep -1
fails 2 '--minutes soon: expected a number >= 0, got "soon"' \
    train $model --data text.txt --minutes soon
fails 2 '--timeout -1: expected a number >= 0, got "-1"' \
    train $model --data text.txt --timeout -1
fails 2 '--evaluate-every 1.5: expected a whole number >= 0 of steps, or of epochs (4ep), got "1.5"' \
    train $model --data text.txt --evaluate-every 1.5
fails 2 '--validation 1: expected a number >= 0 and < 1, or a file or directory, got "1"' \
    train $model --data text.txt --validation 1
fails 2 '--validation -0.5: expected a number ...' train $model --data text.txt --validation -0.5
fails 1 "missing.txt: no such file" train $model --data text.txt --validation missing.txt
fails 2 "tokens.bin: is a token file (.bin), expected text, as text.txt is" \
    train $model --data text.txt tokens.bin
fails 2 "text.txt: is text, expected a token file (.bin), as tokens.bin is" \
    train $model --data tokens.bin --validation text.txt
fails 2 "--overwrite: cannot be with --resume (leave out one)" \
    train $model --data text.txt --resume --overwrite
fails 2 "--new-data: expected --resume" train $model --data text.txt --new-data
fails 2 "--from-step: expected --resume" train $model --data text.txt --from-step 5
fails 2 '--from-step -1: expected a whole number >= 0, got "-1"' train --resume --from-step -1
fails 2 "--resume: run has no run yet (MODEL and --data start one; or another --run)" \
    train --resume
fails 2 "--resume: nowhere has no run yet ..." train $model --resume --run nowhere
fails 2 "--resume: nowhere has no run yet ..." train --data text.txt --resume --run nowhere
fails 1 "missing.txt: no such file" train $model --data missing.txt
fails 1 "missing.txt: no such file" train $model --data text.txt missing.txt
fails 1 "empty.txt: is empty ..." train $model --data empty.txt
fails 1 "short.txt: needs at least 33 bytes ..." train $model --data short.txt
fails 1 "nowhere/: no such file" train $model --data nowhere/
fails 1 "run directory /proc/cgpipe: cannot be written ..." \
    train $model --data text.txt --run /proc/cgpipe
fails 1 "run directory a/b/c: cannot be made ..." train $model --data text.txt --run a/b/c
fails 1 "run directory text.txt: is a file, expected a directory" \
    train $model --data text.txt --run text.txt
fails 1 "search: no plan fits in 100.0 KiB; ..." train $model --data text.txt --memory-limit 100K
fails 1 "nowhere/x.json: cannot be written ..." \
    train $model --data text.txt --json nowhere/x.json
if [ "$(id -u)" -ne 0 ]; then
    mkdir locked && chmod 555 locked
    fails 1 "run directory locked: cannot be written ..." train $model --data text.txt --run locked
    fails 1 "run directory locked/r: cannot be written ..." \
        train $model --data text.txt --run locked/r
fi

# --- plan ---

plan_keys="model parameters layers stages chunks schedule recompute precision convolution deferred_batch_norm replicas shard_optimizer gradient_groups balance batch steps dropout
    seed threads_per_device flops_per_step bubble_simulated activation_bytes_total planned_bytes_total devices
    name stage_layers parameter_bytes gradient_bytes partial_gradient_bytes optimizer_bytes state_bytes input_slots
    input_slot_bytes saved_slots saved_slot_bytes kept_values recomputed_values recomputed_share slot_bytes workspace_bytes transfer_bytes receive_bytes step_bytes host_bytes
    rank variants plan_sha256
    activation_bytes planned_bytes"
run_keys="step_seconds samples_per_second forward_seconds backward_seconds bubble_measured
    transport ranks isa libm host
    gap_median_seconds wake_median_seconds loss_first loss_last weights_sha256 state_sha256 allocated_bytes_total allocated_bytes driver_bytes busy"

run plan gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128 --stages 4 \
    --balance 5,3,3,5 --batch 64
check "plan: exit code 0" exits 0
check "plan: nothing on stderr" empty "$err"
check "plan: 89,762,304 parameters in 16 layers" has "16 layers, 89,762,304 parameters" "$out"
check "plan: the balance that was given" has "balance 5,3,3,5" "$out"
check "plan: a row per device" test "$(grep -c '^cpu:[0-3] ' "$out")" -eq 4
check "plan: the schedule" has "device:3    .  .  . F0 B0 F1 B1" "$out"

run plan $model --stages 2 --chunks 4 --json -
cp "$out" plan.json
check "plan --json -: exit code 0" exits 0
check "plan --json -: standard output is JSON alone" \
    test "$(head -c 1 "$out")$(tail -n 1 "$out")" = "{}"
check "plan --json -: the text goes to stderr" has "memory per device" "$err"
check "plan --json: all keys" keys plan.json $plan_keys
check "plan --json: none that only a run knows" \
    test -z "$(grep -E '"(step_seconds|allocated_bytes|busy)"' plan.json)"
run plan $model --stages 2 --chunks 4 --json plan2.json
check "plan --json FILE writes the same" cmp -s plan.json plan2.json
check "plan --json FILE: the text goes to stdout" has "memory per device" "$out"
run plan $model --memory-limit 1G
check "plan: fits into 1G" exits 0
run plan $model --stages 2 --chunks 4 --json f32.json
check "plan: f32 by default" test "$(value precision f32.json)" = f32
check "plan: direct convolutions by default" test "$(value convolution f32.json)" = direct
check "plan: they are not in the text" test -z "$(grep convolutions "$out")"
check "plan: no deferred batch norm by default" test "$(value deferred_batch_norm f32.json)" = false
run plan $model --stages 2 --chunks 4 --deferred-batch-norm --json deferred.json
check "plan --deferred-batch-norm: in the text" has "deferred batch norm" "$out"
check "plan --deferred-batch-norm: in the JSON" test "$(value deferred_batch_norm deferred.json)" = true
run plan $model --stages 2 --chunks 4 --precision bf16 --json bf16.json
check "plan --precision bf16: exit code 0" exits 0
check "plan --precision bf16: in the text" has "precision bf16" "$out"
check "plan --precision bf16: in the JSON" test "$(value precision bf16.json)" = bf16
check "plan --precision bf16: activations in 50 to 55 % of the bytes" \
    awk -v a="$(value activation_bytes_total bf16.json)" \
    -v b="$(value activation_bytes_total f32.json)" 'BEGIN { exit !(a / b >= 0.5 && a / b <= 0.55) }'
run plan unet:B=1,C=16,depth=1,image=32 --convolution winograd --json winograd.json
check "plan --convolution winograd: in the text" has "precision f32, winograd convolutions, 1 thread" "$out"
check "plan --convolution winograd: in the JSON" test "$(value convolution winograd.json)" = winograd

# --- train and sample ---

run train $model --data text.txt $small --chunks 4 --stages 1 --run one --json one.json --verbose
check "train: exit code 0" exits 0
check "train: nothing on stderr" empty "$err"
check "train: prints the plan" has "memory per device" "$out"
check "train: prints the schedule" has "device:0   F0 B0 F1 B1 F2 B2 F3 B3" "$out"
check "train: progress" has "step 4/4  loss " "$out"
check "train: validation loss" has "validation   loss " "$out"
check "train: planned is allocated" has "(the same to the byte)" "$out"
check "train: busy share" has "busy         cpu:0 " "$out"
check "train --json: all keys" keys one.json $plan_keys $run_keys validation_loss
check "train: weights, run options, metrics" \
    test "$(ls -A one | tr '\n' ' ')" = "latest measured.json metrics.jsonl report.html run.json step-00000003 step-00000004 "
check "train: latest leads to the last step" test "$(readlink one/latest)" = step-00000004
check "train: one line of metrics a step" lines 4 one/metrics.jsonl
x='[0-9.e-]*'
step='^{"step":[1-4],"loss":'$x',"lr":0.001,"seconds":'$x',"tokens_per_second":'$x',"bubble":'$x'}$'
check "train: a step's metrics" test "$(grep -c "$step" one/metrics.jsonl)" -eq 4
check "train: run.json has the whole model" \
    has '"model": "gpt2:layers=1,width=32,heads=2,vocab=256,seq=16"' one/run.json
check "train: run.json has the options" keys one/run.json versions devices starts given data stages chunks seed lr
check "train: first loss is near ln 256" test "$(value loss_first one.json | cut -c 1-3)" = 5.5

run train $model --data text.txt $small --chunks 4 --stages 2 --run two --json -
cp "$out" two.json
check "train --json -: standard output is JSON alone" \
    test "$(head -c 1 "$out")$(tail -n 1 "$out")" = "{}"
check "train --json -: the text goes to stderr" has "weights_sha256" "$err"
check "one stage and two: the same weights" \
    test "$(value weights_sha256 one.json)" = "$(value weights_sha256 two.json)"
check "no running statistics: state_sha256 is null" test "$(value state_sha256 one.json)" = null
check "one stage and two: the same last loss" \
    test "$(value loss_last one.json)" = "$(value loss_last two.json)"
for file in weights.safetensors optimizer.safetensors; do
    check "one stage and two: the same $file" cmp one/step-00000004/$file two/step-00000004/$file
done
# The checkpoint's note contains the run's options, so the note and the checksum of checkpoint.json
# differ.
check "one stage and two: the same checkpoint.json" test \
    "$(grep -vE '"(note|sha256_above)":' one/step-00000004/checkpoint.json)" = \
    "$(grep -vE '"(note|sha256_above)":' two/step-00000004/checkpoint.json)"
run train $model --data text.txt $small --chunks 4 --balance 1,1,3 --schedule gpipe \
    --recompute always --run three --json three.json
check "three stages, gpipe, recomputed: the same weights" \
    test "$(value weights_sha256 one.json)" = "$(value weights_sha256 three.json)"
check "gpipe: forward and backward are apart" test "$(value forward_seconds three.json)" != null
check "1f1b: forward and backward are null" test "$(value forward_seconds one.json)" = null
half="train $model --data text.txt $small --chunks 4 --precision bf16"
run $half --run half1 --verbose --json half1.json
check "bf16: exit code 0" exits 0
check "bf16: planned is allocated" has "(the same to the byte)" "$out"
check "bf16: run.json has it" has '"precision": "bf16"' half1/run.json
run $half --run half2 --stages 3 --schedule gpipe --recompute always+selective --json half2.json
check "bf16, one stage and three: the same weights" \
    test "$(value weights_sha256 half1.json)" = "$(value weights_sha256 half2.json)"
check "bf16 and f32: other weights" \
    test "$(value weights_sha256 half1.json)" != "$(value weights_sha256 one.json)"
check "bf16 and f32: losses within 1 %" awk -v a="$(value loss_last half1.json)" \
    -v b="$(value loss_last one.json)" 'BEGIN { exit !(a / b > 0.99 && a / b < 1.01) }'
run train $model --data text.txt $small --chunks 4 --run other --seed 1 --json other.json
check "another seed: other weights" \
    test "$(value weights_sha256 one.json)" != "$(value weights_sha256 other.json)"

before=$(find one -type f -exec sha256sum {} + | sort)
fails 1 "run directory one: has a run already (--resume continues it, --overwrite deletes it; ..." \
    train $model --data text.txt $small --run one
check "refused run: the directory is as it was" test "$before" = "$(find one -type f -exec sha256sum {} + | sort)"
fails 1 "missing.txt: no such file" train $model --data missing.txt --run one --overwrite
fails 1 "search: no plan fits in 100.0 KiB; ..." \
    train $model --data text.txt --run one --overwrite --memory-limit 100K
check "failed --overwrite: the directory is as it was" test "$before" = "$(find one -type f -exec sha256sum {} + | sort)"
run train $model --data text.txt --batch 8 --steps 2 --run one --overwrite
check "--overwrite: exit code 0" exits 0
check "--overwrite: new metrics" lines 2 one/metrics.jsonl
check "--overwrite: new weights" test "$before" != "$(find one -type f -exec sha256sum {} + | sort)"

run train $model,vocab=300 --data random --batch 4 --steps 2 --run random
check "train --data random: exit code 0" exits 0
sequences() { sed -n 's/^data  *\([0-9,]*\) sequences.*/\1/p' "$out" | tr -d ,; }
run train $model --data text.txt --batch 8 --steps 1 --run joined --validation 0
single=$(sequences)
run train $model --data text.txt text.txt --data text.txt --batch 8 --steps 1 --run joined \
    --validation 0 --overwrite
check "train: several texts are joined" test "$(sequences)" -ge $((3 * single))
check "train: nothing is added between them" test "$(sequences)" -le $((3 * single + 3))
run train $model --data text.txt --batch 8 --steps 1 --run noval --validation 0 --sample 40
check "train --validation 0: no validation" test -z "$(grep "^validation" "$out")"
check "train --sample 40" has "sample of 40 characters" "$out"
run train $model --data text.txt --batch 4 --steps 1 --chunks 64 --run many
check "more micro-batches than samples: as many as there are" has "4 micro-batches of 1" "$out"
run train $model --data text.txt --batch 5 --steps 1 --chunks 4 --run odd
check "batch 5 in 4: three micro-batches of 2, 2, 1" has "3 micro-batches of 2" "$out"
run train $model --data text.txt --batch 4 --steps 30 --lr 1e30 --run broken
check "a loss that is not finite ends the run" exits 1
check "a loss that is not finite is told" has " not finite" "$err"
check "a loss that is not finite, before the first checkpoint: nothing is left" test ! -e broken

run sample two --length 50
cp "$out" sample.txt
check "sample: exit code 0" exits 0
check "sample: 50 bytes and nothing else" test "$(wc -c <sample.txt)" -eq 50
run sample two --length 50
check "sample: the same seed, the same text" cmp -s "$out" sample.txt
run sample two --length 50 --seed 1
check "sample: another seed, another text" test "$(cksum <"$out")" != "$(cksum <sample.txt)"
run sample two --length 40 --temperature 0 \
    --prompt "the longer prompt does not fit into a window of 16"
cp "$out" sample.txt
run sample two --length 40 --prompt "t fit into a window of 16" --temperature 0 --seed 5
check "sample: a window slides, temperature 0 needs no seed" cmp -s "$out" sample.txt
run sample two --length 40 --prompt "t fit into a window of 16" --top-k 1 --seed 5
check "sample: --top-k 1 is temperature 0" cmp -s "$out" sample.txt
run sample two --weights one/latest/weights.safetensors --length 5
check "sample --weights: exit code 0" exits 0

# --- damaged files ---

fails 1 "run directory nowhere: no such directory" sample nowhere
mkdir bare
fails 1 "bare/run.json: cannot be read ..." sample bare
cp two/run.json bare
fails 1 "bare: there is no checkpoint here" sample bare
echo "{ no json" >bare/run.json
fails 1 "bare/run.json: line 1: ..." sample bare
echo '{"version": "0.1.0"}' >bare/run.json
fails 1 'bare/run.json: expected a text "model", got none' sample bare
weights=two/latest/weights.safetensors
size=$(wc -c <$weights)
: >damaged
fails 1 "damaged: ..." sample two --weights damaged
head -c 7 $weights >damaged
fails 1 "damaged: ..." sample two --weights damaged
head -c 300 $weights >damaged
fails 1 "damaged: ..." sample two --weights damaged
head -c $((size - 4)) $weights >damaged
fails 1 "damaged: ..." sample two --weights damaged
{ cat $weights; echo tail; } >damaged
fails 1 "damaged: ..." sample two --weights damaged
{ printf '\377\377\377\377\377\377\377\177'; tail -c +9 $weights; } >damaged
fails 1 "damaged: ..." sample two --weights damaged
sed 's/"F32"/"F99"/' $weights >damaged
fails 1 "damaged: ..." sample two --weights damaged
sed 's/transformer\.wte/transformer.wtf/' $weights >damaged
fails 1 "damaged: transformer.wtf.weight: the model has no such parameter" \
    sample two --weights damaged
sed 's/\[256,32\]/[32,256]/' $weights >damaged
fails 1 "damaged: transformer.wte.weight: expected shape [256, 32], got [32, 256]" \
    sample two --weights damaged
run train gpt2:layers=2,width=32,heads=2,seq=16 --data text.txt $small --run deep
fails 1 "deep/latest/weights.safetensors: transformer.h.1...." \
    sample two --weights deep/latest/weights.safetensors
fails 1 "$weights: ..." sample deep --weights $weights
run train gpt2:layers=1,width=32,heads=4,seq=16 --data text.txt $small --run heads
fails 1 "heads/latest/weights.safetensors: expected the model ..." \
    sample two --weights heads/latest/weights.safetensors
fails 2 "--prompt : expected at least one character, got \"\"" sample two --prompt ""

# --- bench ---

run bench gpt2 --grid --plan-only --json grid.json
check "bench --grid --plan-only: exit code 0" exits 0
check "bench --grid: 42 rows" \
    test "$(grep -cE '^ [124] +[0-9]+  (never|except_last) ' "$out")" -eq 42
check "bench --grid: the log's figures" has "6.44" "$out"
check "bench --grid: every cell at most 0.9 of the log's" \
    test "$(awk '/never|except_last/ && $6 > 0.9' "$out" | wc -l)" -eq 0
# Check that the planned memory is within a bound. The arguments are stages, chunks, recompute mode,
# and the bound in GiB.
at_max() {
    awk -v k="$1" -v m="$2" -v mode="$3" -v bound="$4" \
        '$1 == k && $2 == m && $3 == mode {seen = 1; if ($4 > bound) bad = 1} END {exit !seen || bad}' "$out"
}
check "bench --grid: except_last, M=64, one stage: at most 0.09 GiB" at_max 1 64 except_last 0.09
check "bench --grid: except_last, M=64, two stages: at most 0.14 GiB" at_max 2 64 except_last 0.14
check "bench --grid: except_last, M=64, four stages: at most 0.20 GiB" at_max 4 64 except_last 0.20
check "bench --grid: never, M=1, one stage: at most 4.83 GiB" at_max 1 1 never 4.83
check "bench --grid --json: 42 cells" \
    test "$(grep -c '"log_activation_gib": [0-9]' grid.json)" -eq 42
run bench gpt2 --plan-only --stages 4 --chunks 64 --recompute except_last --json bench.json
check "bench: the experiment's balance" has "balance 5,3,3,5" "$out"
check "bench: parameter memory" \
    has "parameter memory: 12 bytes a parameter (weight, gradient, momentum)" "$out"
check "bench: 89,762,304 parameters" test "$(value parameters bench.json)" = 89762304
small_model=gpt2:layers=12,width=16,heads=2,vocab=50,seq=8
run bench gpt2 --model $small_model --stages 2 --chunks 2 --batch 4 --steps 4 --json bench.json
check "bench: exit code 0" exits 0
check "bench: balance of 16 layers" has "balance 8,8" "$out"
check "bench --json: all keys" keys bench.json $plan_keys $run_keys log_activation_gib
# Check that two measured overheads are above zero and below the time of a step. The first is the
# time between two actions. The second is the time from the arrival of a message until its receiver
# runs.
within_step() { # FILE KEY...
    local file=$1 key
    shift
    for key in "$@"; do
        awk -v x="$(value "$key" "$file")" -v step="$(value step_seconds "$file")" \
            'BEGIN {exit !(x + 0 > 0 && x + 0 < step + 0)}' || return 1
    done
}
check "bench --json: overheads of two stages" within_step bench.json gap_median_seconds wake_median_seconds
check "bench: overheads as text" grep -qE '^overhead +[0-9.]+ us .* [0-9.]+ us .*[(]medians[)]$' "$out"
check "bench: gpipe by default" test "$(value schedule bench.json)" = gpipe
run bench gpt2 --model $small_model --chunks 2 --batch 4 --steps 4 --json bench.json
check "bench --json: one stage waits for no other" test "$(value wake_median_seconds bench.json)" = null
check "bench --json: an action follows another" within_step bench.json gap_median_seconds
check "bench: nobody waits, as text" has "no stage waited for another" "$out"
run bench gpt2 --model $small_model --grid --batch 8 --steps 3 --json grid.json
check "bench --grid runs each cell" test "$(grep -c '"weights_sha256"' grid.json)" -eq 42
check "bench --grid: the same bits for the same micro-batches" \
    test "$(grep '"weights_sha256"' grid.json | sort -u | wc -l)" -le 4

# --- other models ---

run plan amoebanetd:D=208 --stages 2 --batch 4 --devices ref --json plan.json
check "plan: AmoebaNet-D's parameters" test "$(value parameters plan.json)" = 81505540
check "plan: a model without dropout" test "$(value dropout plan.json)" = 0.0
run plan unet --batch 4 --devices ref --json plan.json
check "plan: a model's own dropout" has "dropout 0.1, seed" "$out"
run plan unet --batch 4 --devices ref --dropout 0 --json plan.json
check "plan: --dropout 0 is not the model's own" test "$(value dropout plan.json)" = 0.0
run plan gpt2:seq=8 --batch 4 --json plan.json
check "plan: gpt2 has no dropout of its own" test "$(value dropout plan.json)" = 0.0
run bench resnet20 --grid --plan-only --devices ref --json grid.json
check "bench MODEL: exit code 0" exits 0
check "bench MODEL: 42 rows" \
    test "$(grep -cE '^ [124] +[0-9]+  (never|except_last) ' "$out")" -eq 42
check "bench MODEL: its model" \
    has '"model": "resnet:depth=20,classes=10,image=32,width=16"' grid.json
run bench resnet20 --batch 4 --steps 3 --stages 2 --chunks 2 --balance size --json bench.json
check "bench MODEL runs a model of images" exits 0
check "bench MODEL --json: all keys" keys bench.json $plan_keys $run_keys state_sha256
check "bench MODEL --grid: no figures are published for it" \
    test "$(grep -c '"log_activation_gib": null' grid.json)" -eq 42

# --- schedule ---

run schedule gpipe --stages 3 --chunks 3
cat >expected <<'PICTURE'
device:0   F0 F1 F2  .  .  .  . B0 B1 B2
device:1    . F0 F1 F2  .  . B0 B1 B2  .
device:2    .  . F0 F1 F2 B0 B1 B2  .  .
PICTURE
check "schedule gpipe: the picture" cmp -s expected <(head -n 3 "$out")
run schedule 1f1b --stages 4 --chunks 8 --json -
check "schedule --json: all keys" keys "$out" schedule stages chunks virtual makespan span \
    bubble_makespan bubble_span peak_slots_per_device min_capacity free_capacity
check "schedule 1f1b: makespan 33" test "$(value makespan "$out")" = 33.0
run schedule gpipe --stages 8 --chunks 64
check "schedule: a wide picture is cut" \
    test "$(head -n 8 "$out" | widest)" -le 115
check "schedule: the cut is marked" has " ..." "$out"
run schedule gpipe --stages 1 --chunks 1
check "schedule of one stage: exit code 0" exits 0

run schedule --list --json list.json
check "schedule --list: a line on each, after the first" lines 19 "$out"
check "schedule --list: memory on 4 devices" has "v-half            0.75  less memory than 1f1b" "$out"
check "schedule --list --json: the same" test "$(grep -c '"rule"' list.json)" -eq 18
run schedule --all --stages 4 --chunks 8 --json all.json
check "schedule --all: the shortest step first" test "$(sed -n 4p "$out")" = "interleaved-zb         4      24.75    3.03 %       1  16 16 16 16"
check "schedule --all: half-stages beside 1f1b's" has "v-half                 2       27.5   12.73 %    0.75  6 6 6 6" "$out"
check "schedule --all --json: the same" test "$(grep -c '"memory_of_1f1b"' all.json)" -eq 25
run schedule v-flex --stages 4 --chunks 8 --in-flight 7
check "schedule v-flex --in-flight: half-stages within it" has "peak slots   7 7 7 7" "$out"
run schedule --all --stages 5 --chunks 7
check "schedule --all: what does not exist is named" has "not for these numbers: dualpipe-v" "$out"
fails 2 "--cost-f: cannot be with --all (leave out one)" schedule --all --cost-f 2
fails 2 "--all: expected no NAME, got 1f1b (leave out one)" schedule --all 1f1b
run schedule zb-v --stages 2 --chunks 4 --csv-transfers
cp "$out" zb-v.csv
check "schedule --csv-transfers: a line per device and nothing else" lines 2 zb-v.csv
run schedule zb-v --stages 2 --chunks 4 --json named.json
cp "$out" named.txt
run schedule --check zb-v.csv --json read.json
check "schedule --check of what it wrote: exit code 0" exits 0
check "schedule --check: the same figures" cmp -s named.txt "$out"
check "schedule --check --json: the same but for the name" \
    cmp -s <(grep -v '"schedule"' named.json) <(grep -v '"schedule"' read.json)
printf '0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n' >deadlock.csv
run schedule --check deadlock.csv
check "schedule --check of a deadlock: exit code 1" exits 1
check "schedule --check: the cells that wait" has "device:0    0F0 [0B0] 0F1  0B1" "$out"
check "schedule --check: the cycle" has "device 1 waits at 1RECV_F1 for 0SEND_F1" "$err"
printf '0F0,0B0,0W0,0F1,0BW1\n' >old.csv
run schedule --check old.csv
check "schedule --check: PyTorch's older letters" has "device:0   F0 I0 W0 F1 B1" "$out"
printf '0F0,0B0,0F1,0BW1\n' >old.csv
fails 1 'old.csv: row 1, column 2, "0B0": expected a W of it as well, as B is the older letter for I in a file that has BW, or B and W of one micro-batch' \
    schedule --check old.csv
printf '\357\273\277"0F0","0B0"\r\n' >quoted.csv
run schedule --check quoted.csv
check "schedule --check: a byte order mark and quotes" has "device:0   F0 B0" "$out"
printf '\377\3760\0F\0000\0' >wide.csv
fails 1 'wide.csv: begins with the byte order mark of UTF-16 or UTF-32, expected UTF-8 or ASCII (save it as UTF-8)' \
    schedule --check wide.csv
run schedule zb-h1 --stages 2 --chunks 4 --svg zb.svg --trace-json zb.json
check "schedule --svg" has "</svg>" zb.svg
check "schedule --trace-json" has '"traceEvents"' zb.json
run schedule gpipe --stages 2 --chunks 2 --latency 0.5 --transfer 0.25 --cost-w 2
check "schedule: latency and transfer, there and back" has "makespan     13.5, bubble" "$out"
check "schedule: the critical path" has "critical     F 3, B 9, messages 1.5" "$out"

# --- output that cannot be written ---

if [ -w /dev/full ]; then
    "$program" plan $model >/dev/full 2>"$err"
    code=$?
    check "a full standard output is an error" exits 1
    check "a full standard output is told" has "standard output: cannot be written" "$err"
fi

finish
