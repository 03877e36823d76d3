#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_plan_file.sh SOURCE_DIR BUILD_DIR -- plan files. The test checks what --plan-out writes and
# --plan reads, which options take precedence, and which plan files are refused. It also runs
# trainings whose default plan would exceed --memory-limit.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

model=gpt2:layers=4,width=32,heads=2,seq=16,vocab=256
words="--stages 2 --batch 8 --chunks 4"
option() { jq -r ".options.$1" "$2/run.json"; }

# --- writing and reading ---

run plan $model $words --search --memory-limit 800K --plan-out best.json --json found.json
check "plan --search --plan-out: exit code 0" exits 0
check "the file has the best plan" test "$(jq -c '[.options.schedule, .options.recompute, .options.balance]' best.json)" = \
    "$(jq -c '.choices[0] | [.schedule, .recompute, .balance]' found.json)"
run plan $model $words --search --choice 3 --plan-out third.json --json chosen.json
check "--choice: the file has that row" test "$(jq -c '[.options.schedule, .options.virtual, .options.balance]' third.json)" = \
    "$(jq -c '.choices[2] | [.schedule, .virtual, .balance]' chosen.json)"
check "--choice: so has the command" has "--schedule $(jq -r .options.schedule third.json)" <(jq -r .command chosen.json)
run plan --plan third.json --json planned.json
check "plan --plan: exit code 0" exits 0
check "plan --plan: the bytes that the search found" test "$(jq '[.devices[].planned_bytes] | max' planned.json)" = \
    "$(jq '.choices[2].planned_bytes_fullest' chosen.json)"
run plan --plan third.json --plan-out again.json
check "a plan file is written again the same" cmp third.json again.json
run plan $model $words --balance 3,5 --plan-out own.json
check "--plan-out without --search" test "$code $(jq -c .options.balance own.json)" = "0 [3,5]"

# --- trainings ---

train="--data text.txt --steps 3"
run train $model $words $train --run default
run train --plan third.json $train --run planned
check "train --plan: exit code 0" exits 0
check "train --plan: the plan's layout" test "$(option schedule planned) $(option balance planned | jq -c .)" = \
    "$(jq -r .options.schedule third.json) $(jq -c .options.balance third.json)"
check "train --plan: the weights of every layout" cmp default/latest/weights.safetensors planned/latest/weights.safetensors
cat >run.yaml <<END
model: resnet20
schedule: gpipe
batch: 16
lr: 0.01
END
run train --plan third.json --config run.yaml $train --chunks 2 --run both
check "--plan beside --config: exit code 0" exits 0
check "the command line wins, then the plan, then the run file" \
    test "$(option chunks both) $(option batch both) $(option schedule both) $(option lr both)" = "2 8 $(jq -r .options.schedule third.json) 0.01"
run train --plan third.json $train --schedule zb-v --run other
check "another --schedule drops the plan's balance" test "$code $(option schedule other)" = "0 zb-v"
rm third.json
run train --resume --run planned --steps 4
check "resume takes run.json alone" test "$code $(option balance planned | jq -c .)" = "0 $(jq -c .options.balance again.json)"
fails 2 "--plan: cannot be with --resume, ..." train --resume --run planned --plan again.json
run bench --plan best.json --steps 3 --json bench.json
check "bench --plan" test "$code $(jq -r .schedule bench.json)" = "0 $(jq -r .options.schedule best.json)"
run check --plan best.json
check "check --plan: bit for bit" test "$code $(grep -c '^the same to the bit' "$out")" = "0 1"

# --- what is refused ---

edit() { jq "$1" best.json >edited.json; }
fails 2 "--plan best.json: model: expected gpt2:layers=4,..." train gpt2:layers=3 --plan best.json $train
fails 2 "--plan best.json: graph_sha256: expected ..." train --plan best.json $train --dropout 0.1
fails 2 "--plan best.json: graph_sha256: expected ..." train --plan best.json $train --freeze '*.wte.*'
fails 2 "--plan best.json: devices: expected 2, as planned, got 3 ..." train --plan best.json $train --stages 3
fails 2 "--plan best.json: devices[0]: expected cpu, as planned, got ref:0 ..." train --plan best.json $train --devices ref
edit '.version = "9.9"'
fails 2 "edited.json: version: cgpipe 9.9 made the plan, this is ..." train --plan edited.json $train
edit '.cgpipe_plan = 2'
fails 2 "edited.json: cgpipe_plan: expected 1, got 2 ..." train --plan edited.json $train
edit '.graph_sha256 = "00"'
fails 2 "--plan edited.json: graph_sha256: expected 00, ..." train --plan edited.json $train
edit '.options.shedule = "gpipe"'
fails 1 "edited.json: options.shedule: is no option of a plan (leave it out)" train --plan edited.json $train
edit '.options.plugin = "./mine.so"'
fails 1 "edited.json: options.plugin: is no option of a plan ..." train --plan edited.json $train
edit '.options.stages = "two"'
fails 1 "edited.json: options.stages: --stages two: ..." train --plan edited.json $train
edit '.options.freeze = [1]'
fails 2 "--plan edited.json: graph_sha256: ..." plan --plan edited.json --freeze '*.wte.*'
edit '.devices = []'
fails 1 "edited.json: devices: expected a list of texts" train --plan edited.json $train
edit 'del(.options)'
fails 1 "edited.json: options: expected an object" train --plan edited.json $train
edit '.model = "./mine.so:width=8"'
fails 2 "edited.json: names the plug-in ./mine.so, ..." train --plan edited.json $train
head -c 100 best.json >edited.json
fails 1 "edited.json: line ..." train --plan edited.json $train
mkfifo pipe
fails 1 "pipe: is not a regular file" train --plan pipe $train
head -c 5000000 /dev/zero >large.json
fails 1 "large.json: expected at most 4194304 bytes, ..." train --plan large.json $train
fails 1 "nowhere/plan.json: cannot be written ..." plan $model $words --search --plan-out nowhere/plan.json
fails 2 "--choice: expected --search" plan $model --choice 2
run plan $model $words --schedule 1f1b --search --choice 2 --plan-out none.json
check "a --choice beyond the table" test "$code $(cat "$err")" = "2 cgpipe: --choice 2: 1 plan fits (a number up to 1)"
check "... writes no file" test ! -e none.json
fails 2 "--plan: cannot be with --search, ..." plan --plan best.json --search

run export $model --out mine.json
run plan mine.json $words --plan-out graph.json
fails 2 "--plan graph.json: is for the file mine.json, ..." train --plan graph.json $train
run train mine.json --plan graph.json $train --run graph
check "the plan of a graph file" test "$code $(jq -r .model_sha256 graph.json)" = "0 $(sha256sum mine.json | cut -d ' ' -f 1)"
echo >>mine.json
fails 2 "mine.json: differs from the file of graph.json ..." train mine.json --plan graph.json $train

# --- trainings within a limit ---

run train $model $words $train --run fits --memory-limit 900K
check "the defaults fit: nothing is searched" test "$code $(option schedule fits) $(grep -c '^search ' "$out")" = "0 1f1b 0"
run train $model $words $train --run limited --memory-limit 800K
check "the defaults do not fit: exit code 0" exits 0
check "... one line says what is taken" test "$(grep -c '^search  .* plans within 800.0 KiB: --schedule ' "$out")" = 1
check "... the plan that plan --search finds" test "$(jq -c '[.options.schedule, .options.recompute, .options.balance]' limited/run.json)" = \
    "$(jq -c '.choices[0] | [.schedule, .recompute, .balance]' found.json)"
check "... micro-batches and weights stay" cmp default/latest/weights.safetensors limited/latest/weights.safetensors
run train --resume --run limited --steps 4
check "... resume keeps it" test "$code $(option recompute limited) $(grep -c '^search ' "$out")" = "0 $(jq -r .options.recompute best.json) 0"
run train $model --stages 2 --batch 16 $train --run chunks --memory-limit 800K
check "... also with the default number of micro-batches" test "$code $(option chunks chunks)" = "0 8"
run train $model $words $train --run given --memory-limit 800K --recompute always+selective --schedule 1f1b
check "options given stay" test "$code $(option schedule given) $(option recompute given)" = "0 1f1b always+selective"
fails 1 "device cpu:0: needs ..." train $model $words $train --run none --memory-limit 100K --schedule 1f1b --recompute never --balance 4,4
run train $model $words $train --run "no run" --memory-limit 100K
check "an impossible limit: the least that would do" grep -q 'no plan fits in 100.0 KiB; the least that would do is [0-9]* bytes, with .*: device cpu:.: needs' "$err"
eval "set -- $(grep -o 'train gpt2:.*' "$err")"
run "$@"
check "... the command that fits" test "$code $(option memory_limit "no run")" = "0 $(grep -o 'memory-limit [0-9]*' <<<"$*" | cut -d ' ' -f 2)"
run train resnet:depth=8,image=16,classes=10 --data shapes --stages 2 --batch 8 --chunks 4 --steps 1 --run norms --schedule 1f1b --memory-limit 1300K
check "batch norms keep their micro-batches" test "$code $(option chunks norms)" = "0 4"
finish
