#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_config.sh SOURCE_DIR BUILD_DIR -- run files. An option means the same in the --config file as
# on the command line. The command line overrides the file. Errors name file, line and option.
# `cgpipe config` writes a file that repeats a run.
source "$(dirname "$0")/support.sh"

weights() { sha256sum "$1/latest/weights.safetensors" | cut -d ' ' -f 1; }
same_weights() { test "$(weights "$1")" = "$(weights "$2")"; }
options_of() { jq -S .options "$1/run.json"; }

# --- same meaning as on the command line ---

cat >whole.yaml <<END
# This file contains values of every kind, in all spellings that YAML allows.
---
"model": $model
data: [text.txt, short.txt]     # paths
validation: 0.2
run: from-file
steps: 4
batch: 8
chunks: 2
balance: [2, 3]                 # sets the number of stages
schedule: 'zb-h1'
optimizer: sgd
momentum: .5
nesterov: true
decay-all: false
lr: 1e-2
clip: 1.0
lr-schedule: milestones
lr-milestones:
  - 2
  - 1ep
warmup: 1
save-every: 0
memory-limit: 1G
trace: [step.json, step.svg]
quiet: true
...
END
words="$model --data text.txt short.txt --validation 0.2 --steps 4 --batch 8 --chunks 2 --balance 2,3 --schedule zb-h1 --optimizer sgd
    --momentum .5 --nesterov --lr 1e-2 --clip 1.0 --lr-schedule milestones --lr-milestones 2,1ep --warmup 1 --save-every 0
    --memory-limit 1G --quiet"
run train $words --run words
check "the words: exit code 0" exits 0
run train --config whole.yaml
check "a run file: exit code 0" exits 0
check "a run file: --quiet" empty "$out"
check "a run file: --trace" test -s step.json -a -s step.svg
check "a run file: the same weights" same_weights from-file words
check "a run file: the same options in run.json" diff <(options_of words) <(options_of from-file)
check "a run file: run.json has no trace of it" test "$(grep -c yaml <(options_of from-file))" = 0
check "a run file: it is among what was given" test "$(jq -r .starts[0].given.config from-file/run.json)" = whole.yaml
run train --resume --run from-file --steps 5
check "a run of a run file is resumed without it" exits 0
mkdir elsewhere
(cd elsewhere && run train --config ../whole.yaml --data ../text.txt ../short.txt --run here) 2>/dev/null
check "a run file in another directory: paths are the caller's" same_weights elsewhere/here words

# --- the command line overrides the file ---

options() { # options NAMES WORDS... : plan, and print the values of these options
    local names=$1
    shift
    run "$@" --json options.json
    jq -r "[$names] | map(tostring) | join(\" \")" options.json
}
small="steps: 4\nbatch: 8\nchunks: 2\nstages: 2\n"
printf '%b' "model: $model\n$small" >small.yaml
check "plan takes it" test "$(options .batch,.chunks,.stages,.steps plan --config small.yaml)" = "8 2 2 4"
check "an option wins" test "$(options .batch,.chunks,.stages plan --config small.yaml --chunks 4 --stages 1)" = "8 4 1"
check "MODEL wins" grep -q width=64 <("$program" plan --config small.yaml gpt2:layers=2,width=64,heads=2,vocab=64,seq=8)
check "MODEL behind --data wins" test "$(run train --config small.yaml --data text.txt resnet20
    grep -c 'of resnet' "$err")" = 1
check "--config=FILE" test "$(options .batch plan --config=small.yaml)" = 8
run check --config small.yaml
check "check takes it" exits 0
run profile --config small.yaml --repeats 1
check "profile takes it, as far as it has the options" exits 0

# If the command line gives an option, options of the file that depend on the file's value of this
# option are dropped.
printf '%b' "model: $model\nbalance: [2, 3]\nepochs: 3\nsave-every: 1ep\noptimizer: sgd\nlr: 0.5\nmomentum: 0.8\nnesterov: true
lr-schedule: step\nlr-step-size: 5\nlr-gamma: 0.5\nschedule: zb-v\nbatch: 8\nchunks: 2\n" | sed '2s/.*/stages: 2\nvirtual: 2/' >dropped.yaml
check "--optimizer drops the other one's constants" \
    test "$(options .optimizer,.lr,.momentum,.nesterov plan --config dropped.yaml --optimizer adamw)" = "adamw 0.001 null false"
check "the same --optimizer keeps them" \
    test "$(options .optimizer,.lr,.momentum,.nesterov plan --config dropped.yaml --optimizer sgd)" = "sgd 0.5 0.8 true"
check "--lr-schedule drops what the other one has" \
    test "$(options .lr_schedule,.lr_step_size,.lr_gamma plan --config dropped.yaml --lr-schedule cosine)" = "cosine null null"
check "--schedule drops the other one's virtual stages" \
    test "$(options .schedule,.virtual plan --config dropped.yaml --schedule 1f1b)" = "1f1b 1"
check "--steps drops epochs" test "$(options .steps,.epochs plan --config dropped.yaml --steps 7)" = "7 null"
printf '%b' "model: $model\nbalance: [2, 3]\nbatch: 8\n" >balance.yaml
check "--stages drops a balance" test "$(options .stages plan --config balance.yaml --stages 3)" = 3
printf '%b' "model: $model\ndevices: 3\nbatch: 8\n" >devices.yaml
check "a number of devices" test "$(options .stages plan --config devices.yaml)" = 3
check "--stages drops a number of devices" test "$(options .stages plan --config devices.yaml --stages 2)" = 2
check "--devices drops it too" test "$(options .stages plan --config devices.yaml --devices cpu,ref)" = 2

# --- what is refused ---

file() { printf '%b' "$1" >bad.yaml; }
bad() { # bad YAML MESSAGE
    file "$1"
    fails 2 "bad.yaml: $2" plan --config bad.yaml
}
bad 'batch: 8\nlr: fast' 'line 2: --lr fast: expected a number >= 0, got "fast"'
bad '\n# x\nbatch: -8' 'line 3: --batch -8: expected a whole number >= 1, got "-8"'
bad 'lr: 0x10' 'line 1: --lr 0x10: expected a number >= 0, got "0x10"'
bad 'lr: .inf' 'line 1: --lr .inf: expected a number >= 0, got ".inf"'
bad 'learning-rate: 1' 'line 1: learning-rate: unknown option (did you mean lr?)'
bad 'lr-shedule: cosine' 'line 1: lr-shedule: unknown option (did you mean lr-schedule?)'
bad 'recipe: imagenet-90' 'line 1: recipe: unknown option (give --config recipes/resnet101-imagenet.yaml on the command line)'
bad $'stages: 3\ndevices: 2' '--devices 2: expected 3, one a stage of --stages (leave out one of the two)'
bad 'save_every: 1' 'line 1: save_every: unknown option (did you mean save-every?)'
bad 'xyzzy: 1' 'line 1: xyzzy: unknown option'
bad '--lr: 1' 'line 1: --lr: unknown option (did you mean lr?)'
bad 'lr: 1\nlr: 1' 'line 2: lr: is there twice (leave out one)'
bad 'model: gpt2\nmodel: gpt2' 'line 2: model: is there twice (leave out one)'
bad 'length: 5' 'line 1: length: is an option of cgpipe sample, expected one of cgpipe train (leave it out)'
bad 'grid: true' 'line 1: grid: is an option of cgpipe bench, expected one of cgpipe train (leave it out)'
for name in config resume help overwrite from-step new-data; do
    bad "$name: true" "line 1: $name: applies to one start only (give --$name on the command line)"
done
bad 'nesterov: yes' 'line 1: --nesterov: expected true or false, got another kind of value'
bad 'nesterov: "true"' 'line 1: --nesterov: expected true or false, got another kind of value'
bad 'nesterov: [true]' 'line 1: --nesterov: expected true or false, got a list'
bad 'batch: [1, 2]' 'line 1: --batch: expected a whole number >= 1, got a list'
bad 'data:' 'line 1: expected a value (leave the line out, or quote the text)'
bad 'run: ~' 'line 1: expected a value (leave the line out, or quote the text)'
bad 'lr: null' 'line 1: expected a value (leave the line out, or quote the text)'
bad 'run: ""' 'line 1: --run : expected at least one character, got ""'
bad 'data: []' 'line 1: expected a list of at least one value'
bad 'data: [[a]]' 'line 1: expected a list of single values'
bad 'balance: [2, x]' 'line 1: --balance 2,x: expected whole numbers >= 1 with commas between, or flops, time or size, got "2,x"'
bad 'train:\n  lr: 1' 'line 1: train: unknown option'
bad 'data:\n  train: text.txt' 'line 2: expected a value or a list, no map'
bad 'run: &a x\ntrace: *a' 'line 1: expected no anchor and no alias (write the value out)'
bad 'run: *a' 'line 1: expected no anchor and no alias (write the value out)'
bad '&a lr: 1' 'line 1: expected no anchor and no alias (write the value out)'
bad 'data: &a [x]' 'line 1: expected no anchor and no alias (write the value out)'
bad '<<: {lr: 1}' 'line 1: <<: unknown option'
bad 'lr: !!float 1' 'line 1: expected no tag (write the value alone)'
bad '!x {lr: 1}' 'line 1: expected options, a line each (lr: 0.001)'
bad '? [a]\n: 1' 'line 1: expected the name of an option'
bad '' 'line 1: expected options, a line each (lr: 0.001)'
bad '# nothing\n' 'line 2: expected options, a line each (lr: 0.001)'
bad 'adamw' 'line 1: expected options, a line each (lr: 0.001)'
bad '- lr' 'line 1: expected options, a line each (lr: 0.001)'
bad 'lr: 1\n---\nlr: 2' 'line 2: expected one document'
bad 'lr: 1\n\tbatch: 2' "line 2: found a tab character that violates indentation"
bad 'lr: [1\n' "line 2: did not find expected ',' or ']'"
bad 'run: "a\\0b"' 'line 1: expected text without NUL'
bad 'run: a\0b' 'line 1: control characters are not allowed'
bad 'lr: 1\nrun: \0377\0376\0375' 'line 2: invalid leading UTF-8 octet'
file 'steps: 3\nepochs: 2'
fails 2 "--steps: cannot be with --epochs (leave out one)" plan $model --config bad.yaml
file 'trace: a.txt\nstages: 2\ndevices: 3'
fails 2 "bad.yaml: --devices 3: expected 2, one a stage of --stages (leave out one of the two)" plan $model --config bad.yaml
fails 1 "missing.yaml: No such file or directory" plan --config missing.yaml
fails 1 "elsewhere: is not a regular file, expected a run file" plan --config elsewhere
mkfifo pipe
fails 1 "pipe: is not a regular file, expected a run file" plan --config pipe
{ echo "model: $model"; head -c 1048576 /dev/zero | tr '\0' '#'; } >large.yaml
fails 1 "large.yaml: expected a run file of at most 1048576 bytes, got $(stat -c %s large.yaml)" plan --config large.yaml
fails 2 "--config: cannot be with --resume, which takes all options from run.json (give the options, or another --run)" \
    train --resume --run words --config small.yaml
fails 2 "--config: needs a value" train --config
fails 2 "--config: unknown option" bench gpt2 --config small.yaml
echo "batch: 4" >modelless.yaml
fails 2 "train: MODEL is missing (cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data FILE)" \
    train --config modelless.yaml --data text.txt
fails 2 "train: --data is missing (--data FILE, or --data random or shapes)" train --config small.yaml

# --- cgpipe config ---

repeats() { # RUN WHAT : the written file gives the weights of RUN, and the same file again
    run config "$1"
    check "$2: exit code 0" exits 0
    cp "$out" again.yaml
    rm -rf again
    run train --config again.yaml --run again
    check "$2: trained from its file" exits 0
    check "$2: the same weights" same_weights "$1" again
    check "$2: the same settings" diff <(options_of "$1") <(options_of again)
    check "$2: the same file" diff <(grep -v '^#' again.yaml) <("$program" config again | grep -v '^#')
}
repeats words "a run of many options"
run train $model --data text.txt --epochs 1 --batch 256 --chunks 4 --lr 0.0123456789012345678 --lr-batch 64 --warmup 1ep --warmup-start 1e-7 \
    --evaluate-every 1ep --devices cpu,ref --dropout 0.1 --seed 9007199254740992 --sample 3 --top-k 5 --recompute always+selective \
    --prompt $'"the": #1\t\\ \'\n\xc3\xa4\x7f\xf0\x9f\x98\x80' --run odd
check "a run of odd values: exit code 0" exits 0
repeats odd "a run of odd values"
check "a run of odd values: counted in epochs" test "$(grep -cE '^(epochs: 1|steps: .*|warmup: 1ep)$' again.yaml)" = 2
run train $model --data text.txt --batch 8 --steps 1 --prompt null --validation 1e-1 --run null
repeats null "a run with a text that YAML takes for nothing"
check "a run with a text that YAML takes for nothing: quoted" grep -qx 'prompt: "null"' again.yaml
mkdir "a #b: c" && cp text.txt "a #b: c/null"
(cd "a #b: c" && "$program" train $model --data null --batch 8 --steps 1 --save-every 1 --run '~' --quiet) || not_ok "a run of odd names"
repeats "a #b: c/~" "a run of odd names"
run train --resume --run words --steps 5 --quiet
run config words
check "a run that was changed says so" has "# A later start changed options" "$out"
run config "$source_dir/tests/data/run-0.1/run"
check "a run of 0.1.0" test "$code $(grep -cE '^(lr: 0.003|lr-schedule: cosine|min-lr-ratio: 0.2|memory-limit: 1073741824)$' "$out")" = "0 4"
fails 2 "config: RUN is missing (the directory of cgpipe train)" config
fails 1 "run directory none: no such directory" config none
mkdir empty
fails 1 "empty/run.json: cannot be read (No such file or directory)" config empty
cp -r again edited && sed -i 's/"batch": 8/"batch": "many"/' edited/run.json
fails 1 "edited/run.json: options: batch: expected a value that --batch takes (give --batch again)" config edited
"$program" config words >/dev/full 2>"$err"
check "a full disk is reported" has "standard output: cannot be written" "$err"
finish
