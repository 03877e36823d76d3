#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_daily.sh SOURCE_DIR BUILD_DIR -- tests everyday use: the amount of output, the form of error
# messages, help, suggestions for unknown words, several paths for --data, and memory sizes in
# suitable units.
source "$(dirname "$0")/support.sh"

small="--batch 8 --steps 2"
before_steps() { sed '/^step  *[0-9]*\//,$d' "$1"; }
after_steps() { sed '1,/^step  *2\/2/d' "$1"; }
at_max() { [ "$(wc -l)" -le "$1" ]; }

# --- amount of output ---

run train $model --data text.txt $small --stages 2 --clip 1 --run r --trace x.json,x.svg --sample 20 --overwrite
check "train: exit code 0" exits 0
check "before the first step at most 12 lines" at_max 12 < <(before_steps "$out")
check "after the last at most 9" at_max 9 < <(after_steps "$out" | tr -d '\0')
for word in "^model  .*layers=1" "^data  " "^run  *r$" "^pipeline  *2 stages" "^memory .* planned, .* on the largest of 2 devices$"; do
    check "before it: $word" grep -q "$word" <(before_steps "$out")
done
for word in "^validation  *loss" "^step .* samples/s, bubble" "^weights  *r/latest/weights.safetensors$" "^weights_sha256 " "^trace "; do
    check "after it: $word" grep -qa "$word" <(after_steps "$out")
done
check "no table, no drawing" test -z "$(grep -aE '^(cpu:|device:)' "$out")"
run train $model --data text.txt $small --stages 2 --run v --verbose
for word in "memory per device" "device:0   F0 F1" "simulated bubble" "dropout 0, seed 0" "(the same to the byte)" "busy         cpu:0" \
    "checkpoint   v/step-00000002" "overhead  "; do
    check "--verbose has: $word" has "$word" "$out"
done
check "--verbose is not the run's" test -z "$(grep -E '"(verbose|quiet)": (true|false)' <(jq .options v/run.json))"

# Resume a run with all changes that are reported: batch, micro-batch, device, precision, data, and
# number of steps.
run train $model --data text.txt $small --chunks 8 --lr-schedule cosine --run w
rm w/metrics.jsonl
sed 's/says/sees/' text.txt >other.txt
run train --resume --run w --data other.txt --new-data --steps 3 --batch 4 --chunks 2 --devices ref --precision bf16 --stages 2 --seed 0
check "resumed: exit code 0" exits 0
check "resumed: every warning" test "$(grep -c '^warning' "$out")" -eq 6
check "resumed: at most 12 lines before the first step" at_max 12 < <(before_steps "$out")
check "resumed: all changes in a line" grep -qx \
    'changed      --stages 1 -> 2, --chunks 8 -> 2, --precision "f32" -> "bf16", --batch 8 -> 4, --steps 2 -> 3, --devices null -> \["ref"\]' "$out"
check "resumed: kinds of devices and micro-batches in one" has \
    "warning      devices: cpu before, ref now; samples in a micro-batch: 1 before, 2 now: equal up to rounding only" "$out"

run train $model --data text.txt $small --run q --quiet
check "--quiet: exit code 0" exits 0
check "--quiet: nothing on stdout" empty "$out"
check "--quiet: nothing on stderr" empty "$err"
check "--quiet: it trained" test "$(readlink q/latest)" = step-00000002
run train $model --data text.txt $small --run q --overwrite --quiet --chunks 3 --sample 20 --temperature 0
check "--quiet --sample: the sample" lines 1 "$out"
check "--quiet --sample: nothing else" test -z "$(grep -aE '^(sample|step|model|cgpipe)' "$out" "$err")"
run train $model --data text.txt $small --run q --overwrite --quiet --json -
check "--quiet --json -: the JSON" test "$(jq -r .steps "$out")" = 2
check "--quiet --json -: nothing else" empty "$err"
run plan $model --quiet --json -
check "plan --quiet --json -: the JSON" test "$(jq -r .layers "$out")" = 5
check "plan --quiet --json -: nothing else" empty "$err"
fails 1 "missing.txt: no such file" train $model --data missing.txt --quiet
fails 2 "--quiet: cannot be with --verbose (leave out one)" train $model --data text.txt --quiet --verbose

# --- form of errors: each `fails` expects "cgpipe: ", not followed by another command's name ---

fails 2 '--schedule: expected a name of `cgpipe schedule --list`, got "1f1c" (did you mean 1f1b?)' \
    train $model --data text.txt --schedule 1f1c
printf '0F0,0F0\n' >twice.csv
for command in plan check bench; do
    fails 2 "--schedule: device 0, ..." $command $model --schedule twice.csv
done
fails 1 "memory: the plan needs ..." train gpt2 --data random --batch 1000000 --run large
CGP_LOG=info run plan $model --batch 2 --chunks 8
check "what the library says has no command's name" test -z "$(grep -E '^cgpipe (train|plan|schedule|check|sample|profile)' "$err")"
check "but the module" grep -q '^cgpipe: \[plan\] warning: 2 samples give 2 micro-batches of 1, not the requested 8$' "$err"

# --- help ---

run --help
cp "$out" help.txt
run -h
check "-h is --help" cmp -s "$out" help.txt
check "help has groups" test "$(grep -c '^[a-z][a-z ]*:$' help.txt)" -ge 3
run --version
cp "$out" version.txt
run -V
check "-V is --version" cmp -s "$out" version.txt
for command in train supervise stop diagnose sample config tokenize convert devices plan profile check bench schedule; do
    run help $command
    cp "$out" help.txt
    run $command -h
    check "$command -h: exit code 0" exits 0
    [ $command = train ] || check "$command -h is help $command" cmp -s "$out" help.txt
    check "help $command has groups" grep -q '^output:$' help.txt
    check "help $command: no option twice" test -z "$(grep -o '^  --[a-z0-9-]*' help.txt | sort | uniq -d)"
    check "help $command: no group without an option" awk '/^[a-z ]+:$/ { if (open) bad = 1; open = 1 } /^  --/ { open = 0 }
        END { exit bad || open }' help.txt
    check "help $command: no option without a group" awk '/^[a-z ]+:$/ { open = 1 } /^$/ { open = 0 } /^  --/ && !open { bad = 1 }
        END { exit bad }' help.txt
done
run help train
for group in data run pipeline training optimizer devices sampling output; do
    check "help train: $group" grep -qx "$group:" "$out"
done
cp "$out" help.txt
run train $model -h --stages 2
check "-h after words: exit code 0" exits 0
check "train -h: fifteen options" test "$(grep -c '^  --' "$out")" -eq 15
check "train -h: the options of help train" test -z "$(grep '^  --' "$out" | grep -vxFf help.txt)"
check "train -h: how to see all" grep -qx '`cgpipe train --help` (or `cgpipe help train`) shows all options.' <(tail -n 1 "$out")
run train -h --help
check "train -h --help is help train" cmp -s "$out" help.txt
options_of() { "$program" help "$1" | grep -o '^  --[a-z0-9-]*' | tr -d ' '; }
check "help plan: no option without an effect on a plan" test -z "$(options_of plan | grep -xE -- '--(lr|steps|seed|clip|beta1|nesterov)')"
check "help plan: options of its memory" test "$(options_of plan | grep -cxE -- '--(batch|optimizer|momentum|dropout)')" -eq 4
check "help bench: no option that it always has" test -z "$(options_of bench | grep -xE -- '--(nesterov|decay-all)')"
run plan $model --lr 0.1 --steps 7 --seed 3
check "plan takes them, as train does" exits 0

# --- options of other programs, and typing errors ---

fails 2 "version: unknown command (did you mean --version?)" version
fails 2 "resume: unknown command (did you mean train --resume?)" resume
fails 2 "generate: unknown command (did you mean sample?)" generate
fails 2 "smaple: unknown command (did you mean sample?)" smaple
fails 2 "--hepl: unknown option (did you mean --help?)" --hepl
fails 2 "xyzzy: unknown command (cgpipe help)" xyzzy
fails 2 "trace: unknown command (cgpipe help)" trace
fails 2 "-x: unknown option (cgpipe help)" -x
meant() { fails 2 "$1: unknown option (did you mean $2?)" train $model --data text.txt "$1" 2; }
meant --rate --lr
meant --rate-schedule --lr-schedule
meant --rate-least --min-lr-ratio
meant --rate-interval --lr-step-size
meant --rate-factor --lr-gamma
meant --device-memory --memory-limit
fails 2 "--rate: unknown option (did you mean --lr?)" plan $model --rate=0.1
meant --learning-rate --lr
meant --learning_rate --lr
meant --LR --lr
meant --min-lr --min-lr-ratio
meant --micro-batches --chunks
meant --microbatches --chunks
meant --num_microbatches --chunks
meant --gradient-accumulation-steps --chunks
meant --batch-size --batch
meant --batchsize --batch
meant --num-epochs --epochs
meant --max-steps --steps
meant --gpus --stages
meant --num-gpus --stages
meant --dtype --precision
meant --conv-algorithm --convolution
meant --grad-clip --clip
meant --wd --weight-decay
meant --output-dir --run
meant --eval-interval --evaluate-every
meant --num-workers --workers
meant --shcedule --schedule
meant --device --devices
meant --num-devices --devices
# Some abbreviations of cgpipe's options are also options of another program. They are refused, and
# the message suggests the option that has the meaning of the other program. All other abbreviations
# are accepted.
fails 2 "--min-lr: unknown option (did you mean --min-lr-ratio?)" plan $model --lr-schedule cosine --min-lr=1e-5
fails 2 "--threads: unknown option (did you mean --threads-per-device?)" plan $model --threads 2
meant --dev --validation
run plan $model --dev 2 --min-lr-r 0.5 --lr-sched cosine --json abbreviated.json
check "abbreviations are taken" test "$code$(value stages abbreviated.json)$(value min_lr_ratio abbreviated.json)" = 020.5
fails 2 "--zzz: unknown option" plan $model --zzz
fails 2 "--output: unknown option (did you mean --out?)" tokenize --tokenizer x --output x
fails 2 "--output: unknown option" plan $model --output x # `plan` has no similar option
fails 2 "--max-new-tokens: unknown option (did you mean --length?)" sample r --max-new-tokens 5
# Check that each suggestion in the table is an option of some command.
sed -n 's/^    {",\(.*\),", CLI_OPTION_\([A-Z0-9_]*\)},$/\2 \1/p' "$source_dir/cli/options/near.c" >meanings
check "the table of meanings is read" test "$(wc -l <meanings)" -ge 30
taken=$(for command in train supervise stop diagnose sample config tokenize convert devices plan profile check bench schedule; do
    "$program" help $command | grep -o '^  --[a-z0-9-]*'
done | sort -u | tr -d ' ')
check "no meaning is an option itself" test -z "$(sed 's/^[^ ]* //' meanings | tr , '\n' | sed 's/^/--/' |
    grep -xF -e "$taken" | grep -vxE -- '--(vocab|output)')"

# --- --devices: a number or names ---

stages() { jq -r '"\(.stages) \([.devices[].name] | join(","))"' devices.json; }
for words in "--devices 3" "--devices cpu,cpu,cpu" "--devices 3 --stages 3" "--devices cpu --stages 3" "--devices 3 --balance 1,2,2" \
    "--stages 3"; do
    run plan $model $words --json devices.json
    check "$words: three devices" test "$code $(stages)" = "0 3 cpu:0,cpu:1,cpu:2"
done
run plan $model --devices cpu,ref --json devices.json
check "--devices of two names: two stages" test "$code $(stages)" = "0 2 cpu:0,ref:1"
run plan $model --devices 1 --json devices.json
check "--devices 1" test "$code $(stages)" = "0 1 cpu:0"
run plan $model --devices ref --json devices.json
check "--devices of one name: one stage" test "$code $(stages)" = "0 1 ref:0"
run check $model --devices 2 --batch 4
check "check --devices 2: two stages" grep -q "^pipeline  *2 stages" "$out"
fails 2 "--devices 4: expected 2, one a stage of --stages (leave out one of the two)" plan $model --devices 4 --stages 2
fails 2 "--devices 0: expected a number from 1 to 2147483647, or names (as in cpu*3,ref)" plan $model --devices 0
fails 2 "--devices 99999999999: expected a number from 1 to 2147483647, or names (as in cpu*3,ref)" plan $model --devices 99999999999
fails 2 "--stages 2147483647: the model has 5 layers ..." plan $model --devices 2147483647
fails 2 "--balance: expected 2 numbers, one a stage, got 3" plan $model --devices 2 --balance 1,2,2
run plan $model --devices "cpu*2,ref:0@2GiB" --json devices.json
check "--devices cpu*2,ref:0@2GiB: three stages" test "$code $(stages)" = "0 3 cpu:0,cpu:1,ref:2"
check "the limit of a device is in the JSON" test "$(jq -c '[.devices[].memory_limit]' devices.json)" = "[null,null,2147483648]"
run plan $model --devices cpu@100M,ref@1GiB --memory-limit 512MiB --json devices.json
check "--memory-limit holds beside it" test "$code $(jq -c '[.devices[].memory_limit]' devices.json)" = "0 [104857600,536870912]"
fails 1 "device ref:1: needs ..." plan $model --devices cpu,ref@1K
fails 2 '--devices: "cpu*0": expected a number >= 1 behind "*", got "0" (as in cpu*3)' plan $model --devices "cpu*0"
fails 2 '--devices: "cuda:x": expected a number >= 0 behind ":", got "x" (as in cuda:0, or cuda:local)' plan $model --devices cuda:x
fails 2 '--devices: "cpu@2Q": expected bytes >= 1 behind "@", got "2Q" (as in cpu@2GiB or @500M)' plan $model --devices cpu@2Q
fails 2 "--devices: expected names with commas between, got no name in one place ..." plan $model --devices cpu,,ref
fails 2 "--devices: expected one name for all, or one for each of the 2, got 3" plan $model --devices "cpu*3" --stages 2
fails 2 'device: expected cpu...' plan $model --devices "toy:1*2"
fails 2 "device cpu:1: expected an ordinal below 1 on this machine, got 1 ..." check $model --devices cpu:1 --batch 4
fails 2 "--devices: cannot be with --grid, which varies it (leave out one)" bench gpt2 --grid --devices 2
run train $model --data text.txt $small --run n --devices 2
check "train --devices 2: a run of two stages" test "$code$(jq -c '[.options.stages, .options.devices]' n/run.json)" = '0[2,["cpu"]]'
run train --data text.txt $model $small --run o --devices "cpu@1G,cpu*1"
check "train --devices cpu@1G,cpu*1: its devices are in the record" \
    test "$code$(jq -c '[.options.stages, .options.devices, .devices]' o/run.json)" = '0[2,["cpu@1G","cpu"],["cpu:0","cpu:1"]]'
run config o
check "and in its run file" grep -qxF "devices: [cpu@1G, cpu]" "$out"
run train --resume --run o --steps 3
check "it goes on with them" test "$code$(jq -c '.starts[1].changed | keys' o/run.json)" = '0["steps"]'
run train --resume --run o --steps 4 --devices cpu@1K,cpu
check "but not with a limit that is too small" grep -q "its memory is limited to 1.00 KiB" "$err"
run train --resume --run n --steps 3 --devices 3
check "resumed --devices 3" grep -qx 'changed      --stages 2 -> 3, --steps 2 -> 3' "$out"

# --- several paths, then MODEL ---

cp text.txt second.txt
size() { jq -r '.options.data | length' "$1/run.json"; }
sequences() { sed -n 's/^data  *\([0-9,]*\) sequences.*/\1/p' "$out" | tr -d ,; }
run train $model --data text.txt $small --validation 0 --run d1
one=$(sequences)
for words in "--data text.txt second.txt" "--data text.txt --data second.txt" "--data=text.txt second.txt" \
    "--data text.txt --steps 2 --data=second.txt"; do
    run train $model $words $small --validation 0 --run d2 --overwrite
    check "$words: both" test "$(sequences)" -ge $((2 * one))
    check "$words: both are the run's" test "$(size d2)" = 2
    run train --resume --run d2 --steps 3
    check "$words: resumed with both" test "$code$(size d2)" = 02
done
(cd d2 && exec "$program" train --resume --run ../d2 --steps 4) >"$out" 2>"$err"
check "both from another directory" test "$?$(size d2)" = 02
for words in "--data text.txt second.txt $model" "$small --data text.txt second.txt $model" "--data text.txt --data second.txt $model"; do
    run train $words $small --validation 0 --run d3 --overwrite
    check "$words: exit code 0" exits 0
    check "$words: both" test "$(size d3)" = 2
    check "$words: MODEL" test "$(jq -r .model d3/run.json)" = gpt2:layers=1,width=32,heads=2,vocab=256,seq=16
done
run train --resume --run d3 --steps 3 --data text.txt second.txt $model
check "--resume with all words again" exits 0
run train --resume --run d3 --steps 4 --data $model
check "--resume --data MODEL: the run's data" test "$code$(size d3)" = 02
check "--resume --data MODEL: no other data" test -z "$(grep '^changed .*--data' "$out")"
mkdir gpt2
cp text.txt second.txt gpt2
run train --resume --run d3 --steps 5 --data gpt2 --new-data
check "--resume --data gpt2, a directory: data" test "$code$(jq -r '.options.data[0]' d3/run.json)" = "0$PWD/gpt2"
fails 2 "train: --data is missing ..." train --data gpt2:layers=1
fails 2 "gpt2: layrs: unknown key (did you mean layers?)" train --data text.txt gpt2:layrs=1
fails 2 "train: MODEL is missing ..." train --data text.txt second.txt
fails 1 "unet: no such file" train $model --data text.txt unet

# --- memory in suitable units ---

run plan $model --stages 2
check "plan: a small one in KiB" grep -qE '^all .* [0-9.]+ KiB ' "$out"
check "plan: fits" grep -qxE 'fits this machine now: [0-9.]+ MiB of [0-9.]+ [GMT]iB available' "$out"
run plan gpt2 --batch 1000000
check "plan: too large is planned all the same" exits 0
check "plan: in TiB" grep -qE '^cpu:0 .* [0-9.]+ TiB ' "$out"
check "plan: does not fit" grep -qxE \
    'does not fit this machine now: memory: the plan needs 9[0-9.]+ TiB but the machine has [0-9.]+ [GM]iB available \(.*\)' "$out"
sed -n 's/^does not fit this machine now: \(.*\) but .*/cgpipe: \1/p' "$out" >says
run train gpt2 --data random --batch 1000000 --run large
check "train refuses in the same words" test "$(sed 's/ but .*//' "$err")" = "$(cat says)"
fails 1 "device cpu:0: needs 92.94 TiB (parameters, gradients, optimizer and state 2.43 GiB, slots 92.94 TiB, workspace 976.6 MiB, transfer 0 B) but its memory is limited to 1.00 GiB ..." \
    plan gpt2 --batch 1000000 --memory-limit 1G

finish
