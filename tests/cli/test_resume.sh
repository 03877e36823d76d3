#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_resume.sh SOURCE_DIR BUILD_DIR -- a run that is stopped and resumed gives the results of an
# undisturbed run.
source "$(dirname "$0")/support.sh"

# This training has state of all kinds: optimizer moments, the key of the dropout masks, the step of
# the learning rate schedule, and the position in the data.
training="$model,tied=1 --data text.txt --batch 8 --chunks 4 --dropout 0.1 --clip 1 --warmup 3
    --lr-schedule cosine --evaluate-every 4 --save-every 3"

sha() { sed -n 's/^weights_sha256 //p' "$out"; }
files() { find "$1" -type f -exec sha256sum {} + | sort; }
# Print the lines of metrics.jsonl without times, so that losses and learning rates can be compared.
losses() { sed 's/,"seconds".*"bubble":[^,}]*//' "$1/metrics.jsonl"; }
steps() { sed -n 's/^{"step":\([0-9]*\),.*}$/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
one_to() { seq -s ' ' 1 "$1" | sed 's/$/ /'; }

run train $training --steps 10 --run straight
check "the run without a stop: exit code 0" exits 0
whole=$(sha)
check "tied=1: run.json has it" has 'seq=16,tied=1"' straight/run.json

# --- 10 = 5 + resume + 5, in any layout ---

# The cosine schedule would differ with --steps 5. So, to get a checkpoint of step 5, a run with
# --steps 10 is stopped.
stop_after() { # STEPS RUN OPTIONS...
    local steps=$1 directory=$2
    shift 2
    run train $training --steps 10 --run "$directory" --minutes 0.000001 "$@"
    for _ in $(seq 2 "$steps"); do
        run train --resume --run "$directory" --minutes 0.000001
    done
}

number=0
for layout in "--stages 2" "--stages 3 --schedule gpipe" "--balance 1,4 --recompute always" \
    "--balance 2,2,1 --recompute except_last+selective" "--stages 5 --recompute selective" \
    "--stages 2 --schedule gpipe --recompute except_last" \
    "--stages 2 --schedule zb-v --recompute always"; do
    number=$((number + 1))
    stop_after 5 "run-$number"
    check "stopped by time: exit code 0" exits 0
    check "stopped by time: it says so" has "--minutes: stopped after step 5 of 10, which is saved" \
        "$out"
    check "stopped by time: it says how to go on" \
        has "(cgpipe train --resume --run run-$number continues)" "$out"
    run train --resume --run "run-$number" $layout
    check "resumed: exit code 0" exits 0
    check "resumed: nothing on stderr" empty "$err"
    check "resumed: it says from where" has "resumed      after step 5 of 10" "$out"
    check "resumed: no warning" test -z "$(grep ^warning "$out")"
    check "resumed with $layout: the same weights" test "$(sha)" = "$whole"
    check "resumed: a line each of 10 steps" test "$(steps "run-$number")" = "$(one_to 10)"
    check "resumed: the same losses, rates, norms" \
        test "$(losses "run-$number")" = "$(losses straight)"
    check "resumed: the same checkpoint" test "$(
        cmp "run-$number/latest/weights.safetensors" straight/latest/weights.safetensors &&
        cmp "run-$number/latest/optimizer.safetensors" straight/latest/optimizer.safetensors &&
        echo same)" = same
done
# Resume a run of zb-v with a schedule table, and then with another schedule.
stop_after 5 run-v --stages 2 --schedule zb-v
check "run.json: two stages on a device" has '"virtual": 2' run-v/run.json
"$program" schedule zb-h1 --stages 2 --chunks 4 --csv >own.csv
run train --resume --run run-v --minutes 0.000001 --schedule own.csv
check "resumed with a table: exit code 0" exits 0
run train --resume --run run-v --schedule gpipe --stages 3
check "resumed without it: the same weights" test "$(sha)" = "$whole"

check "run.json: a start each" test "$(grep -c '"date"' run-1/run.json)" -eq 6
check "run.json: the new layout is the run's" has '"stages": 2' run-1/run.json
check "run.json: what was given, and so changed" test "$(grep -c '"stages": 2' run-1/run.json)" -eq 3
check "run.json: devices" has '"cpu:1"' run-1/run.json
check "keep: two checkpoints" test "$(ls -d run-1/step-* | wc -l)" -eq 2

run train --resume --run run-1
check "a complete run: exit code 0" exits 0
check "a complete run: nothing left to do" has "the run has done all its 10" "$out"
check "a complete run: the same weights" test "$(sha)" = "$whole"
run train --resume --run run-1 --steps 12 --json more.json
check "more steps: they are done" has "step 12/12" "$out"
check "more steps with cosine: a warning" has "warning      steps: 10 before, 12 now" "$out"
check "more steps: a line each" test "$(steps run-1)" = "$(one_to 12)"
check "resume --json: where it went on" test "$(value resumed_from more.json)" = 10
check "resume --json: updates" test "$(value updates more.json)" = 12
check "resume --json: not stopped" test "$(value stopped more.json)" = null
check "resume --json: rate" keys more.json lr_last gradient_norm validation_loss

# --- resume from another directory; data that moved or changed ---

stop_after 5 elsewhere
mkdir -p other/place
(cd other/place && exec "$program" train --resume --run ../../elsewhere) >"$out" 2>"$err"
code=$?
check "resumed from another directory: exit code 0" exits 0
check "resumed from another directory: the same weights" test "$(sha)" = "$whole"
stop_after 5 moved
cp -r moved gone
cp text.txt copy.txt
run train --resume --run moved --data copy.txt
check "moved data are the same data" test "$(sha)" = "$whole"
mv text.txt away.txt
run train --resume --run gone
check "missing data: exit code 1" exits 1
check "missing data: told by name" has "text.txt: no such file" "$err"
mv away.txt text.txt
sed 's/says/sees/' text.txt >changed.txt
before=$(files gone)
run train --resume --run gone --data changed.txt
check "other data: exit code 1" exits 1
check "other data: refused, with a way out" has "or --new-data to continue with these)" "$err"
run train --resume --run gone --validation 0.2
check "another share for validation: refused" has "data: differ from the run's (identity " "$err"
check "refused: the directory is as it was" test "$before" = "$(files gone)"
run train --resume --run gone --data changed.txt --new-data
check "--new-data: exit code 0" exits 0
check "--new-data: told" has "warning      data: differ from the run's: read from their beginning" \
    "$out"
check "--new-data: a line each" test "$(steps gone)" = "$(one_to 10)"
check "--new-data: run.json has them" has "/changed.txt" gone/run.json

# --- refusals and warnings ---

stop_after 3 kept
before=$(files kept)
fails 1 "run directory kept: has a run already (--resume continues it, --overwrite deletes it; ..." \
    train $training --run kept
fails 2 "--seed 5: the run has seed 0 and keeps it (leave it out, or another --run)" \
    train --resume --run kept --seed 5
fails 2 "--optimizer sgd: the run has adamw and keeps it (leave it out, or another --run)" \
    train --resume --run kept --optimizer sgd
fails 2 "gpt2:layers=1,width=32,heads=4,seq=16,tied=1: the run has the model ..." \
    train gpt2:layers=1,width=32,heads=4,seq=16,tied=1 --resume --run kept
fails 2 "balance: sums to 4 ..." train --resume --run kept --balance 2,2
fails 2 "--warmup 30: expected fewer than ..." train --resume --run kept --warmup 30
run train --resume --run kept --from-step 1
check "--from-step without that checkpoint: exit code 1" exits 1
check "--from-step without that checkpoint: told" has "kept/step-00000001" "$err"
check "refused: the directory is as it was" test "$before" = "$(files kept)"
cp -r kept layout
run train $training --steps 10 --resume --run layout --seed 0 --optimizer adamw
check "the same words again: no change is told" test -z "$(grep -E '^(changed|warning)' "$out")"
check "the same words again: the same weights" test "$(sha)" = "$whole"
cp -r kept layout2
run train --resume --run layout2 --chunks 2
check "another micro-batch: a warning" \
    has "warning      samples in a micro-batch: 2 before, 4 now: equal up to rounding only" "$out"
cp -r kept layout3
run train --resume --run layout3 --batch 16 --chunks 8 --devices ref
check "another batch: a warning" has "warning      batch: 8 before, 16 now" "$out"
check "another kind of device: a warning" has "warning      devices: cpu before, ref now" "$out"
check "what changed is told" grep -q "^changed .*--batch 8 -> 16, " "$out"
check "another precision: none unless it is given" \
    test -z "$(grep '^warning      precision' "$out")"
cp -r kept layout4
run train --resume --run layout4 --precision bf16
check "another precision: exit code 0" exits 0
check "another precision: a warning" \
    has "warning      precision: f32 before, bf16 now: other rounding from here on" "$out"
check "another precision: what changed is told" has 'changed      --precision "f32" -> "bf16"' "$out"
cp -r layout4 layout5
run train --resume --run layout5 --steps 12
check "precision stays as it was" has "precision bf16" "$out"
check "precision stays as it was: no warning" test -z "$(grep '^warning      precision' "$out")"

cp -r kept tiles
run train --resume --run tiles --convolution winograd
check "another convolution: a warning" \
    has "warning      convolution: direct before, winograd now: other rounding from here on" "$out"

cp -r kept threads
run train --resume --run threads --threads-per-device 2
check "other threads: the same bits" test "$(sha)" = "$whole"

# --- run directories in which files are missing ---

mkdir empty-run
run train $training --steps 10 --resume --run empty-run
check "--resume without a run starts one" test "$(sha)" = "$whole"
cp -r kept young && rm -r young/step-* young/latest
run train --resume --run young
check "--resume without a checkpoint starts from the first step" test "$(sha)" = "$whole"
check "... with a line each" test "$(steps young)" = "$(one_to 10)"
cp -r kept nameless && rm nameless/run.json
fails 1 "run directory nameless: has parts of a run but no run.json (--overwrite deletes ..." \
    train $training --resume --run nameless
cp -r kept odd && echo "{ no json" >odd/run.json
fails 1 "odd/run.json: line 1: ..." train --resume --run odd
sed 's/"stages": 1/"stages": "many"/' kept/run.json >odd/run.json
fails 1 "odd/run.json: options: stages: expected a value that --stages takes (give --stages again)" \
    train --resume --run odd
run train --resume --run odd --stages 1
check "... which is given anew" test "$(sha)" = "$whole"
cp -r kept dangling && rm dangling/latest && ln -s step-00000099 dangling/latest
run train --resume --run dangling
check "a link that leads nowhere: the newest whole one" test "$(sha)" = "$whole"

cp -r kept torn
printf '{"step":4,"loss":1}\n{"step":5,"lo' >>torn/metrics.jsonl
mkdir torn/.cgpipe-step-00000004-1-0.tmp && echo x >torn/.cgpipe-step-00000004-1-0.tmp/weights
echo mine >torn/notes.txt
run train --resume --run torn
check "a torn line and later ones: cut" test "$(steps torn)" = "$(one_to 10)"
check "... and the same losses" test "$(losses torn)" = "$(losses straight)"
check "left-overs of a killed process: deleted" test -z "$(ls -d torn/.cgpipe-* 2>/dev/null)"
check "... and nothing else" has mine torn/notes.txt
cp -r kept lost && : >lost/metrics.jsonl
run train --resume --run lost
check "lost metrics: a warning" has "warning      lost/metrics.jsonl: no lines after step 0" "$out"
check "lost metrics: those that come" test "$(steps lost)" = "4 5 6 7 8 9 10 "

run train $training --steps 4 --run torn --overwrite
check "--overwrite: exit code 0" exits 0
check "--overwrite: the old run is gone, nothing else" \
    test "$(ls -A torn | tr '\n' ' ')" = "latest measured.json metrics.jsonl notes.txt report.html run.json step-00000003 step-00000004 "
check "--overwrite: its own start alone" test "$(grep -c '"date"' torn/run.json)" -eq 1

# --- damage ---

run train $training --steps 10 --run damaged --keep 0 --save-every 2
check "--keep 0 keeps all" test "$(ls -d damaged/step-* | wc -l)" -eq 5
printf '\377' | dd of=damaged/step-00000010/optimizer.safetensors bs=1 seek=5000 conv=notrunc \
    2>/dev/null
run train --resume --run damaged
check "a damaged checkpoint: exit code 1" exits 1
check "a damaged checkpoint: its file" has "damaged/step-00000010/optimizer.safetensors" "$err"
check "a damaged checkpoint: the one before, and the way out" has "; step-00000008 is whole (--from-step 8)" "$err"
run sample damaged --length 5
check "sample from a damaged checkpoint: exit code 1" exits 1
check "sample from a damaged checkpoint: no text" empty "$out"
run sample damaged --length 5 --from-step 8
check "sample --from-step: exit code 0" exits 0
run train --resume --run damaged --from-step 6 --minutes 0.000001
check "--from-step: later checkpoints are gone" test "$(ls -d damaged/step-* | tail -n 1)" = damaged/step-00000007
check "--from-step: later lines are gone" test "$(steps damaged)" = "$(one_to 7)"
run train --resume --run damaged --from-step 6 --stages 2
check "--from-step: exit code 0" exits 0
check "--from-step: the same weights" test "$(sha)" = "$whole"
check "--from-step: a line each" test "$(steps damaged)" = "$(one_to 10)"
check "--from-step: a whole latest one" test "$(readlink damaged/latest)" = step-00000010
run sample damaged --length 5
check "sample from it again: exit code 0" exits 0
cp -r kept headless && : >headless/latest/checkpoint.json
run train --resume --run headless
check "an empty checkpoint.json: exit code 1" exits 1
cp -r kept foreign
for directory in foreign/step-*; do cp -r "$directory" "$directory.mine"; done
run train --resume --run foreign
check "directories of other names are left alone" test "$(ls -d foreign/*.mine | wc -l)" -ge 1

# --- a step that fails or hangs ---

cp -r kept hangs
export CGP_FAULT=stall:1B2
run train --resume --run hangs --stages 2 --timeout 1
unset CGP_FAULT
check "a step that hangs: exit code 1" exits 1
check "a step that hangs: the report" has "longest chain of waiting devices" "$err"
check "a step that hangs: its action at last" \
    test "$(tail -n 1 "$err" | cut -d : -f 1,2)" = "cgpipe: stage 1, micro-batch 2, 1B2"
run train --resume --run hangs
check "a step that hangs: resumed" test "$(sha)" = "$whole"
cp -r kept fails
export CGP_FAULT=fail:1F3
run train --resume --run fails --stages 2
unset CGP_FAULT
check "a step that fails: exit code 1" exits 1
check "a step that fails: which" \
    test "$(tail -n 1 "$err" | cut -d : -f 1,2)" = "cgpipe: stage 1, micro-batch 3, 1F3"
run train --resume --run fails
check "a step that fails: resumed" test "$(sha)" = "$whole"
check "a step that fails: a line each" test "$(steps fails)" = "$(one_to 10)"

# --- a start that fails before its first checkpoint leaves no run ---

export CGP_FAULT=fail:0F1
fails_without_a_trace() { # NAME WORDS...
    local name=$1 before
    shift
    before=$(files . ; find . | sort)
    run train $training --steps 10 "$@"
    check "$name: exit code 1" exits 1
    check "$name: its failure is told" has "0F1" "$err"
    check "$name: nothing is left" test "$before" = "$(files . ; find . | sort)"
}
fails_without_a_trace "a first start that fails" --run never
mkdir -p notes/step-5 && echo mine | tee notes/mine.txt notes/step-5/mine.txt >/dev/null
fails_without_a_trace "a first start that fails beside files of the user's" --run notes
fails_without_a_trace "a first start that fails, --resume" --run notes --resume
cp -r kept young && rm -r young/step-* young/latest
run train --resume --run young
check "a run that was there: exit code 1" exits 1
check "a run that was there: it stays" test -s young/run.json
export CGP_FAULT=fail:0F3
cp -r kept saved-before
run train --resume --run saved-before
check "a run with a checkpoint: it stays" test -e saved-before/latest/checkpoint.json -a -s saved-before/run.json
unset CGP_FAULT
run train $training --steps 10 --run never
check "the same words again, without the fault: exit code 0" exits 0
check "the same words again, without the fault: the same weights" test "$(sha)" = "$whole"
rm -r young saved-before

# --- an old checkpoint that cannot be deleted ---

cp -r kept stuck
mkdir -p stuck/step-00000002/mine/deep
run train --resume --run stuck --keep 1
check "an old checkpoint that cannot be deleted: exit code 0" exits 0
check "an old checkpoint that cannot be deleted: the same weights" test "$(sha)" = "$whole"
check "an old checkpoint that cannot be deleted: a warning" grep -q \
    "warning: the old step-00000002 stays: stuck/.cgpipe-step-00000002-[^ ]*.gone/mine: cannot be deleted (Directory not empty)" "$err"
check "an old checkpoint that cannot be deleted: the others are" test "$(ls -d stuck/step-*)" = stuck/step-00000010
check "an old checkpoint that cannot be deleted: only what is not its own stays" \
    test "$(cd stuck && find .cgpipe-* -type f | wc -l) $(cd stuck && find .cgpipe-* -type d | wc -l)" = "0 3"
run train --resume --run stuck --steps 12
check "... resumed: exit code 0" exits 0
check "... resumed: a warning" grep -q "^cgpipe: warning: stuck/.cgpipe-.*/mine: cannot be deleted (Directory not empty)$" "$err"
run train $training --steps 10 --run stuck --overwrite
check "... overwritten: exit code 0" exits 0

# --- when checkpoints are made ---

run train $training --steps 6 --run seldom --save-every 0
check "--save-every 0: one, at the end" test "$(ls -d seldom/step-* | tr '\n' ' ')" = "seldom/step-00000006 "
run train $training --steps 7 --run three --save-every 3 --keep 5
check "--save-every 3: 3, 6 and the last" \
    test "$(ls -d three/step-* | tr '\n' ' ')" = "three/step-00000003 three/step-00000006 three/step-00000007 "
check "--evaluate-every: shown" test "$(grep -c "/7  loss .*  val [0-9]" "$out")" -eq 2
run train $training --steps 40 --run tenth --keep 0
check "--save-every 3 of 40: 13 and the last" test "$(ls -d tenth/step-* | wc -l)" -eq 14
run train $model --data text.txt --batch 8 --steps 40 --run tenths --keep 0
check "without --save-every: ten" test "$(ls -d tenths/step-* | wc -l)" -eq 10
check "--evaluate-every 4 of 7, and the last" \
    test "$(grep validation_loss three/metrics.jsonl | sed 's/,.*//' | tr '\n' ' ')" = '{"step":4 {"step":7 '

# --- an epoch is a number of samples, whatever the batch size ---

head -c 3217 text.txt >epochs.txt # 201 sequences: 10 steps of 20, or 25 steps of 8
note() { jq -r .note "$1/latest/checkpoint.json" | jq -c "$2"; }
in_epochs="--epochs 3 --evaluate-every 1ep --save-every 1ep --keep 0 --lr-schedule milestones --lr-milestones 1ep,2ep --warmup 0"
run train $model --data epochs.txt --validation 0.004 --batch 20 --run epochs ${in_epochs/3/1}
check "an epoch of 20 samples a step: 10 steps" test "$(note epochs '[.steps, .position]')" = "[10,200]"
run train --resume --run epochs --batch 8 $in_epochs
check "... and two of 8: 50 steps, 3 passes" test "$(note epochs '[.steps, .position]')" = "[60,600]"
check "... the learning rate is cut at the ends of epochs" \
    test "$(jq -c '[.step, (1e6 * .lr | round)]' epochs/metrics.jsonl | sed -n '10,11p; 35,36p; 60p' | tr '\n' ' ')" = "[10,1000] [11,100] [35,100] [36,10] [60,10] "
check "... each is evaluated" test "$(jq -c 'select(.validation_loss).step' epochs/metrics.jsonl | tr '\n' ' ')" = "10 35 60 "
check "... and saved" test "$(ls -d epochs/step-*)" = "$(printf 'epochs/step-%08d\n' 10 35 60)"
tail -c 3217 text.txt >others.txt
run train --resume --run epochs --epochs 4 --data others.txt --new-data
check "... with other data, one more epoch: 25 steps" test "$(note epochs '[.steps, .position]')" = "[85,200]"
run train --resume --run epochs --epochs 2
check "... fewer epochs than there are: no step" has "no step      the run has done all its" "$out"
run train --resume --run epochs --from-step 35 --epochs 3 --batch 20 --data epochs.txt
check "... from an earlier checkpoint, 20 samples a step again: 10 steps" test "$(note epochs '[.steps, .position]')" = "[45,600]"

# --- two processes at once ---

"$program" train $training --steps 1000000 --run busy >/dev/null 2>&1 &
process=$!
for _ in $(seq 6000); do
    [ -e busy/latest ] && break
    sleep 0.02
done
run train --resume --run busy
check "a second process: exit code 1" exits 1
check "a second process is kept out" \
    has "run directory busy: another cgpipe train is at work in it (stop that one, or another --run)" \
    "$err"
run sample busy --length 5
check "sample from a run that goes on: exit code 0" exits 0
{ kill -KILL "$process" && wait "$process"; } 2>/dev/null
run sample busy --length 5
check "sample from a run that was killed: exit code 0" exits 0

# --- token files, directories, data for validation ---

plain="--batch 8 --steps 4"
run train $model --data text.txt $plain --run text
bytes=$(sha)
iconv -f LATIN1 -t UTF-16LE text.txt >tokens.bin # one 16-bit token per byte
run train $model,vocab=256 --data tokens.bin $plain --run tokens
check "a token file: exit code 0" exits 0
check "a token file: tokens, not bytes" has "sequences of 16 tokens" "$out"
check "bytes as tokens: the same weights" test "$(sha)" = "$bytes"
run train --resume --run tokens --steps 6
check "a token file: resumed" has "step 6/6" "$out"
run train $model,vocab=100 --data tokens.bin $plain --run large
check "a token above the vocabulary: exit code 4" exits 4
check "a token above the vocabulary: told by name" has "tokens.bin: " "$err"
{
    printf '\210\330\064\001\001\000\000\000' # llm.c's header: 20240520, version 1
    printf "\\$(printf %o $(($(wc -c <text.txt) & 255)))\\$(printf %o $(($(wc -c <text.txt) >> 8)))\\0\\0"
    head -c 1012 /dev/zero
    cat tokens.bin
} >shard.bin
run train $model,vocab=256 --data shard.bin $plain --run shard
check "a shard of llm.c: the same weights" test "$(sha)" = "$bytes"
head -c 1001 tokens.bin >odd.bin
run train $model,vocab=256 --data odd.bin $plain --run odd-tokens
check "half a token: exit code 1" exits 1

mkdir -p directory/below && head -n 200 text.txt >directory/a.txt && tail -n 200 text.txt >directory/below/b.txt
run train $model --data directory $plain --run directory-run
check "a directory: its files, joined" test "$(sha)" = "$bytes"
run train $model --data directory/a.txt --validation directory/below $plain --run apart --json apart.json
check "--validation DIR: exit code 0" exits 0
check "--validation DIR: its windows" test "$(value validation_windows apart.json)" -gt 100
run train --resume --run apart --steps 6
check "--validation DIR: resumed" exits 0
run train $model --data directory/a.txt --validation directory/below/b.txt $plain --run apart2 --json apart2.json
check "--validation FILE: the same" \
    test "$(value validation_loss apart.json)" = "$(value validation_loss apart2.json)"

# --- optimizers ---

for optimizer in "sgd --momentum 0" "sgd --nesterov" "adam --beta1 0.8 --beta2 0.99 --eps 1e-6" \
    "rmsprop --alpha 0.9" "rmsprop --momentum 0.5 --decay-all --weight-decay 0.1"; do
    words="$model --data text.txt --batch 8 --lr-schedule step --lr-step-size 3 --optimizer $optimizer"
    rm -rf opt opt2
    run train $words --steps 6 --run opt
    whole=$(sha)
    run train $words --steps 3 --run opt2
    run train --resume --run opt2 --steps 6 --stages 2 --schedule gpipe
    check "3 + 3 steps of $optimizer: the same weights" test "$(sha)" = "$whole"
done
check "the rate goes down in steps" \
    test "$(sed -n 's/.*"lr":\([0-9.e-]*\),.*/\1/p' opt/metrics.jsonl | sort -u | wc -l)" -eq 3

# --- frozen parameters ---

run plan $model --stages 3 --freeze 'transformer.w*' --json plan.json
check "--freeze: plan shows it" has "of them frozen" "$out"
check "--freeze: and so does its JSON" has '"transformer.w*"' plan.json
run plan $model --freeze 'wte.weight'
check "--freeze: a pattern without a parameter is refused" has \
    '--freeze: no parameter of model gpt2 matches "wte.weight"' "$err"
run train $training --steps 6 --run frozen --freeze 'transformer.w*,*.h.0.*'
frozen=$(sha)
run train $training --steps 6 --run frozen-2 --freeze 'transformer.w*,*.h.0.*' --minutes 0.000001
run train --resume --run frozen-2 --stages 3
check "--freeze: a run keeps it" test "$(sha)" = "$frozen"

# --- parameter groups ---

run plan $model --parameter-groups 'head.*:lr=0.1'
check "--parameter-groups: a pattern without a parameter is refused" has \
    'parameter group: no parameter of model gpt2 matches "head.*"' "$err"
for wrong in '*.bias' ':lr=1' '*.bias:lr=x' '*.bias:lr=1:lr=2' '*.bias:decay=0' '*.bias:lr=-1'; do
    run plan $model --parameter-groups "$wrong"
    check "--parameter-groups $wrong: is refused" has "X >= 0, got \"$wrong\"" "$err"
done
groups='*.bias:lr=0.1:weight-decay=0,*.h.0.*:lr=0'
run train $training --steps 6 --run groups --parameter-groups "$groups"
check "--parameter-groups: train shows them" has "*.bias, lr 0.1, weight decay 0" "$out"
groups_sha=$(sha)
run train $training --steps 6 --run groups-2 --parameter-groups "$groups" --minutes 0.000001
run train --resume --run groups-2 --stages 3
check "--parameter-groups: a run keeps them" test "$(sha)" = "$groups_sha"
run train $training --steps 6 --run groups-3 --minutes 0.000001
run train --resume --run groups-3 --parameter-groups "$groups"
check "--parameter-groups: a change is shown" has "--parameter-groups null -> " "$out"
check "--parameter-groups: and has its effect" test "$(sha)" != "$groups_sha"

finish
