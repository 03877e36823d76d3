#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_record.sh SOURCE_DIR BUILD_DIR -- run.json is the only record of a run's options. If run.json
# is edited after a checkpoint, resuming is refused, and the message names the command-line option
# to use instead. Invalid values in run.json are refused too.
source "$(dirname "$0")/support.sh"

words="$model --data text.txt --batch 8 --chunks 2 --save-every 2 --interval 3 --clip 1 --nesterov
    --optimizer sgd --momentum 0.5 --stages 2 --balance 2,3"
sha() { sed -n 's/^weights_sha256 //p' "$out"; }
edit() { sed -i "$2" "$1/run.json"; } # RUN SED
kept() { rm -rf a; cp -r kept a; }

run train $words --steps 8 --run straight
whole=$(sha)
run train $words --steps 4 --run kept
run train --resume --run kept --steps 8
check "no edit: resumed" exits 0
check "no edit: the same weights" test "$(sha)" = "$whole"
check "no edit: nothing is said of it" test -z "$(grep -E '^note' "$out")"
rm -r kept
run train $words --steps 8 --run kept --minutes 0.000001
run train --resume --run kept --minutes 0.000001

# --- an edit is refused; the message names the option to use instead ---

refused() { # SED MESSAGE
    kept
    edit a "$1"
    local before
    before=$(find a -type f -exec sha256sum {} + | sort)
    run train --resume --run a
    check "edited ($1): exit code 1" exits 1
    check "edited ($1): one line" lines 1 "$err"
    check "edited ($1): told" test "$(sed 's/^cgpipe: //' "$err")" = "a/run.json: $2"
    check "edited ($1): nothing has changed" test "$before" = "$(find a -type f -exec sha256sum {} + | sort)"
}
back="the checkpoint was written with"
refused 's/"lr": [^,]*/"lr": 0.002/' \
    "lr is 0.002, $back 0.01 (put it back; to change it on resume give --lr 0.002)"
refused 's/"batch": 8/"batch": 16/' "batch is 16, $back 8 (put it back; to change it on resume give --batch 16)"
refused 's/"schedule": "1f1b"/"schedule": "gpipe"/' \
    "schedule is \"gpipe\", $back \"1f1b\" (put it back; to change it on resume give --schedule gpipe)"
refused 's/"lr": [^,]*/"lr": 0.002/; s/"clip": [^,]*/"clip": 2/; s/"batch": 8/"batch": 16/' \
    "batch is 16, $back 8 (put it back; to change it on resume give --batch 16; so are 2 more)"
refused '/"lr": /d' "lr is null, $back 0.01 (put it back, no option unsets it; or another --run)"
refused 's/"nesterov": true/"nesterov": false/' \
    "nesterov is false, $back true (put it back, no option unsets it; or another --run)"
refused 's/"decay_all": false/"decay_all": true/' \
    "decay_all is true, $back false (put it back; to change it on resume give --decay-all)"
refused 's/"seed": 0/"seed": 5/' "seed is 5, $back 0 (put it back, a run keeps its seed; or another --run)"
refused 's/\(^  "model": .*\)heads=2/\1heads=4/' \
    "model is $(sed -n 's/^  "model": "\(.*\)heads=2\(.*\)",/\1heads=4\2/p' kept/run.json), $back $(
        sed -n 's/^  "model": "\(.*\)",/\1/p' kept/run.json) (put it back, a run keeps its model; or another --run)"
kept
cp text.txt "my text.txt"
edit a 's/files\/text.txt/files\/my text.txt/'
run train --resume --run a
check "the same data elsewhere: exit code 0" exits 0
check "the same data elsewhere: the same weights" test "$(sha)" = "$whole"
kept
tr -d '\n' <a/run.json | sed 's/"balance": \[[^]]*\]/"balance": [3, 2]/' >b && mv b a/run.json
run train --resume --run a
check "edited balance: told" has "(put it back; to change it on resume give --balance 3,2)" "$err"

kept
edit a 's/"lr": [^,]*/"lr": 0.002/'
run train --resume --run a --lr 0.002
check "edited, and the option given: exit code 0" exits 0
told=$(sha)
kept
run train --resume --run a --lr 0.002
check "edited, and the option given: the weights of the option alone" test "$(sha)" = "$told"
kept
edit a 's/"lr": [^,]*/"lr": 1e-2/; s/"compiler": "[^"]*"/"compiler": "another"/; s/"date": "[^"]*"/"date": ""/'
run train --resume --run a
check "the same number in other digits, versions, dates: exit code 0" exits 0
check "the same number in other digits, versions, dates: the same weights" test "$(sha)" = "$whole"

# --- a change by the command line is not an edit, even after failed starts ---

kept
export CGP_FAULT=fail:1F0
run train --resume --run a --lr 0.002 --schedule gpipe --stages 3
check "a start that fails: exit code 1" exits 1
unset CGP_FAULT
check "a start that fails: run.json has its rate" has '"lr": 0.002' a/run.json
run train --resume --run a
check "resumed after it: exit code 0" exits 0
check "resumed after it: with its rate" test "$(sha)" = "$told"
export CGP_FAULT=fail:0F0
kept
run train --resume --run a --lr 0.002
run train --resume --run a --lr 0.003
run train --resume --run a
unset CGP_FAULT
edit a '0,/"lr": 0.003/s//"lr": 0.002/' # changes the options only
run train --resume --run a
check "edited after three starts that failed: told" has "the checkpoint was written with 0.003" "$err"
kept
run train --resume --run a --lr 0.002 --keep 0
run train --resume --run a --from-step 2 --steps 9
check "an older checkpoint of a run that was changed: exit code 0" exits 0

# --- run.json records injected faults, because they change numbers ---

kept
check "no fault: none in run.json" jq -e 'has("plugins") or any(.starts[]; has("fault") or has("plugins")) | not' a/run.json >/dev/null
for level in warn error; do
    kept
    CGP_LOG=$level CGP_FAULT=delay:1F0:0,late:0F0 run train --resume --run a --quiet
    check "a fault, --quiet, CGP_LOG=$level: printed" grep -qx 'cgpipe: \[pipeline\] CGP_FAULT: delay:1F0:0: 1F0 takes longer' "$err"
    check "a fault, --quiet, CGP_LOG=$level: in the start of run.json" test "$(jq -r '.starts[-1].fault' a/run.json)" = delay:1F0:0,late:0F0
done
CGP_FAULT=$'delay:1F0:0,\xff\e[2J' run train $words --steps 2 --run faults --json faults.json
check "a fault of control characters: escaped in run.json" test "$(jq -r '.starts[0].fault' faults/run.json)" = 'delay:1F0:0,\xff\x1b[2J'
check "a fault: in the JSON" test "$(jq -r .fault faults.json)" = 'delay:1F0:0,\xff\x1b[2J'

# --- runs of older versions ---

kept
for checkpoint in a/step-*; do
    python3 - "$checkpoint" <<'PYTHON'
import hashlib, json, sys
path = sys.argv[1] + "/checkpoint.json"
text = open(path).read()
root = json.loads(text)
note = json.loads(root["note"])
del note["options"], note["starts"]
root["note"] = json.dumps(note)
del root["sha256_above"]
body = json.dumps(root, indent=1)[:-2]
whole = body + ',\n "sha256_above": "%s"\n}\n' % hashlib.sha256(body.encode()).hexdigest()
open(path, "w").write(whole)
open(sys.argv[1] + "/checkpoint.sha256", "w").write(
    hashlib.sha256(whole.encode()).hexdigest() + "  checkpoint.json\n")
PYTHON
done
cp -r a old
run train --resume --run a
check "a checkpoint of before: exit code 0" exits 0
check "a checkpoint of before: a note" grep -q "^note  .*edits of run.json are not detected" "$out"
check "a checkpoint of before: the same weights" test "$(sha)" = "$whole"
edit old 's/"lr": [^,]*/"lr": 0.002/'
run train --resume --run old
check "a checkpoint of before, edited: exit code 0" exits 0
check "a checkpoint of before, edited: a note" grep -q "^note  " "$out"

# --- values of the wrong type ---

for edit in 's/"optimizer": "sgd"/"optimizer": ["sgd"]/optimizer' 's/"lr": [^,]*/"lr": [0.01]/lr' \
    's/"schedule": "1f1b"/"schedule": []/schedule' 's/"stages": 2/"stages": [2]/stages' \
    's/"nesterov": true/"nesterov": [true]/nesterov' 's/"validation": [^,]*/"validation": ["text.txt"]/validation' \
    's/"data": \[/"data": "text.txt", "x": [/data' 's/"optimizer": "sgd"/"optimizer": 5/optimizer'; do
    kept
    edit a "${edit%/*}/"
    fails 1 "a/run.json: options: ${edit##*/}: expected a value that --${edit##*/} takes (give --${edit##*/} again)" \
        train --resume --run a
done
for value in '[null]' '[{}]' '[1.5]' '"many"' '[2, [3]]'; do
    kept
    tr -d '\n' <a/run.json | sed "s/\"balance\": \[[^]]*\]/\"balance\": $value/" >b && mv b a/run.json
    fails 1 "a/run.json: options: balance: expected a value that --balance takes (give --balance again)" \
        train --resume --run a
done

# A list in run.json may be long: this run.json with a balance of 3,000 stages is accepted. Only the
# plan refuses the balance.
kept
tr -d '\n' <a/run.json | sed "s/\"balance\": \[[^]]*\]/\"balance\": [$(printf '1, %.0s' $(seq 2999))1]/" >b && mv b a/run.json
run train --resume --run a
check "a balance of 3000 stages is read" has "stages 3000: the model has 5 layers" "$err"

# --- runs of cgpipe 0.1.0, which have other keys: rate, rate_schedule, device_memory .. ---

# The second start of the old run had the options --rate 0.003 --steps 6, and failed before it saved
# a checkpoint.
old() { rm -rf old && cp -r "$source_dir/tests/data/run-0.1/run" old; }
cp "$source_dir/tests/data/run-0.1/text.txt" old.txt
old
run train --resume --run old --data old.txt
check "0.1.0: exit code 0" exits 0
check "0.1.0: nothing changed" test -z "$(grep -E '^(changed|note)' "$out")"
check "0.1.0: resumed" grep -qx "resumed      after step 4 of 6" "$out"
check "0.1.0: the steps continue" test "$(jq .step old/metrics.jsonl | tr '\n' ' ')" = "1 2 3 4 5 6 "
check "0.1.0: at its learning rates" test "$(jq 'select(.step > 4).lr * 1e6 | round' old/metrics.jsonl | tr '\n' ' ')" = "761 600 "
check "0.1.0: lines of before stay" test "$(head -n 4 old/metrics.jsonl)" = "$(cat "$source_dir/tests/data/run-0.1/run/metrics.jsonl")"
check "0.1.0: its options under today's names" test "$(jq -c '.options | [.lr, .lr_schedule, .min_lr_ratio, .memory_limit]' old/run.json)" = \
    '[0.003,"cosine",0.2,1073741824]'
check "0.1.0: no other name is left" test -z "$(jq -r '.. | objects | keys[]' old/run.json | grep -E '^(rate|device_memory)')"
old
run train --resume --run old --data old.txt --lr 0.004
check "0.1.0: a change" grep -qx "changed      --lr 0.003 -> 0.004" "$out"
old
edit old '0,/"rate": 0.003/s//"rate": 0.005/'
run train --resume --run old --data old.txt
check "0.1.0, edited: exit code 1" exits 1
check "0.1.0, edited: refused under today's name" grep -q "^cgpipe: old/run.json: lr is 0.005.*, the checkpoint was written with 0.003" "$err"
old
run sample old --length 20 --temperature 0
check "0.1.0: sample" exits 0
run convert old old-gpt2
check "0.1.0: convert" exits 0

finish
