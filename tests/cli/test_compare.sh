#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_compare.sh SOURCE_DIR BUILD_DIR -- train --digest-every writes the same digests for every
# layout, even if the run is killed and resumed. cgpipe compare names the settings that differ, and
# the first step and tensor that differ. It refuses damaged files. The Python reader in
# docs/reference/digests.md reads digests.bin.
source "$(dirname "$0")/support.sh"

words="gpt2:layers=3,width=32,heads=2,seq=16 --data $work/files/text.txt --batch 8 --chunks 4 --seed 1 --quiet"
steps=16
lacks() { ! has "$@"; }
export CGP_LOG=error

fails 2 "compare: RUN is missing (the directory of cgpipe train)" compare
fails 2 "compare: the second RUN is missing" compare one
fails 2 "c: unexpected argument after a" compare a b c
fails 1 "run directory none: no such directory" compare none none

run train $words --steps $steps --digest-every 1 --run one
check "one stage: trained" [ "$code" = 0 ]
run train $words --steps $steps --digest-every 1 --run four --stages 4 --schedule zb-h1 --recompute always
check "four stages: trained" [ "$code" = 0 ]
run train $words --steps $steps --run none
check "without the option: no file, no digest" [ ! -e none/digests.bin ]
check "without the option: no digest in metrics" lacks '"digest"' none/metrics.jsonl
fails 1 "none/digests.bin: no such file (cgpipe train --digest-every N writes it)" compare one none
fails 1 "run directory nowhere: no such directory" compare one nowhere

run compare one one
check "a run equals itself" [ "$code" = 0 ]
check "a run has its own settings" lacks settings "$out"

run compare one four --json compare.json
check "one and four stages: exit code 0" [ "$code" = 0 ]
check "one and four stages: equal" has "equal        $steps steps, 1 to $steps, $(jq '.tensors | length' <(head -1 one/digests.bin)) tensors each" "$out"
check "settings are named" grep -q 'stages: 1 and 4$' "$out"
check "settings are named" grep -q 'schedule: "1f1b" and "zb-h1"$' "$out"
check "devices are named" grep -qF 'devices: ["cpu:0"] and ["cpu:0","cpu:1","cpu:2","cpu:3"]' "$out"
check "no fault is named" lacks CGP_FAULT "$out"
check "JSON: equal" [ "$(jq -c '[.equal, .equal_steps, .step, .tensors]' compare.json)" = "[true,$steps,null,[]]" ]

# --- the reader on the page ---

sed -n '/^```python$/,/^```$/p' "$source_dir/docs/reference/digests.md" | sed '/^```/d' >reader.py
check "the reader has ten lines" [ "$(grep -c . reader.py)" -le 11 ]
python3 reader.py one/digests.bin >roots
check "the reader reads the roots of the metrics" diff <(jq -r '"\(.step) \(.digest)"' one/metrics.jsonl) roots

# --- resumed ---

run train $words --steps $steps --digest-every 1 --run killed --save-every 4 --keep 0
cp -r killed resumed
run train --resume --from-step 8 --run resumed --steps $steps --stages 2 --quiet
check "resumed: ended" [ "$code" = 0 ]
run compare one resumed
check "resumed from an earlier step: equal" [ "$code" = 0 ]
check "resumed: every step once" cmp one/digests.bin resumed/digests.bin
head -c $(($(head -1 one/digests.bin | wc -c) + 20000)) one/digests.bin >resumed/digests.bin # simulates a crash
run train --resume --from-step 12 --run resumed --steps $steps --quiet
check "resumed after a crash: ended" [ "$code" = 0 ]
run compare one resumed
check "after a crash: the records that are there are equal" [ "$code" = 0 ]
run train --resume --from-step 8 --run killed --steps 12 --digest-every 0 --quiet
check "switched off: later records are cut off" [ "$(python3 reader.py killed/digests.bin | tail -1 | cut -d' ' -f1)" = 8 ]
CGP_FAULT=kill:0F0@3 run train $words --steps 6 --digest-every 1 --save-every 0 --run early
check "killed before the first checkpoint: three records" [ "$(python3 reader.py early/digests.bin | wc -l)" = 3 ]
run train --resume --run early --steps 2 --quiet
check "started again: two records" [ "$(python3 reader.py early/digests.bin | wc -l)" = 2 ]
CGP_FAULT=kill:0F0@3 run train $words --steps 6 --digest-every 1 --save-every 0 --run early --overwrite
run train --resume --run early --steps 2 --digest-every 0 --quiet
check "started again without digests: none" [ ! -s early/digests.bin ]
# --- resumed, with a digests.bin that does not fit or is damaged ---

run train $words --steps 3 --digest-every 1 --run sgd --optimizer sgd
rm -r killed
run train $words --steps 12 --digest-every 1 --run killed --save-every 4 --keep 0
resume_with() { # EVERY COMMAND.. : pass digests.bin of a copy through COMMAND; resume from step 8
    rm -rf again
    cp -r killed again
    "${@:2}" <killed/digests.bin >again/digests.bin
    run train --resume --from-step 8 --run again --steps 12 --digest-every "$1" --quiet
}
steps_of() { python3 reader.py "$1/digests.bin" | cut -d' ' -f1 | paste -sd' '; }
spoil() { # NUMBER : change a byte in the record before the last NUMBER records
    cat >spoilt
    printf X | dd of=spoilt bs=1 seek=$(($(wc -c <spoilt) - $1 * record - 60)) conv=notrunc 2>/dev/null
    cat spoilt
}
record=$((($(wc -c <killed/digests.bin) - $(head -1 killed/digests.bin | wc -c)) / 12))

resume_with 1 sh -c 'cat >/dev/null; cat sgd/digests.bin'
check "other tensors: refused" [ "$code" = 1 ]
check "other tensors: told" grep -qF 'again/digests.bin: has digests of other tensors (delete it, or --digest-every 0)' "$err"
check "other tensors: the run is as before" diff -r -x digests.bin -x .lock killed again
check "other tensors: the file is as before" cmp sgd/digests.bin again/digests.bin
resume_with 1 head -c 100
check "a torn header: resumed" [ "$code" = 0 ]
check "a torn header: the file begins again" [ "$(steps_of again)" = "9 10 11 12" ]
check "a torn header: told" grep -q 'warning: again/digests.bin: expected a first line .*(the file begins again after step 8)$' "$err"
resume_with 0 head -c 100
check "a torn header, without digests: resumed" [ "$code" = 0 ]
check "a torn header, without digests: left alone" cmp -s again/digests.bin <(head -c 100 killed/digests.bin)
check "a torn header, without digests: told" grep -q 'warning: again/digests.bin: expected a first line .*(the file is left as it is)$' "$err"
resume_with 1 spoil 7
check "a damaged record: resumed" [ "$code" = 0 ]
check "a damaged record: later ones are deleted" [ "$(steps_of again)" = "1 2 3 4 9 10 11 12" ]
check "a damaged record: told" grep -qF 'warning: again/digests.bin: the record of step 5 is damaged (records deleted from there on: 8)' "$err"

run train $words --steps 3 --digest-every 1 --run one --overwrite --optimizer sgd
check "overwritten: ended" [ "$code" = 0 ]
run compare four one
check "other tensors: exit code 5" [ "$code" = 5 ]
check "other tensors: named" has "differs      the runs digest different tensors (model, optimizer or --freeze)" "$out"
check "other tensors: after the settings" grep -q 'optimizer: "adamw" and "sgd"' "$out"

run train $words --steps 4 --save-every 2 --keep 0 --digest-every 1 --run rms --optimizer rmsprop --momentum 0.5
cp -r rms rms2
run train --resume --from-step 2 --run rms2 --steps 4 --quiet
check "rmsprop: resumed" [ "$code" = 0 ]
check "rmsprop: no warning" [ ! -s "$err" ]
run compare rms rms2
check "rmsprop: equal" [ "$code" = 0 ]

# --- a changed line of the data ---

sed '40s/.*/Something else stands in this line./' text.txt | head -c "$(wc -c <text.txt)" >other.txt
run train ${words/text.txt/other.txt} --steps $steps --digest-every 1 --run other --stages 2
first=$(diff <(jq -c '[.step, .loss]' four/metrics.jsonl) <(jq -c '[.step, .loss]' other/metrics.jsonl) | sed -n 's/^< \[\([0-9]*\),.*/\1/p' | head -1)
run compare four other
check "changed data: exit code 5" [ "$code" = 5 ]
check "changed data: step $first is named" has "differs      step $first is the first, after $((first - 1)) equal" "$out"
check "changed data: the loss is named" grep -q '^  loss       .* and .*, summed over the mini-batch$' "$out"
check "changed data: the gradient is named" grep -q '^  gradient   transformer.wte.weight is the first, ' "$out"
check "changed data: the parameter is named" grep -q '^  parameter  transformer.wte.weight is the first, ' "$out"

# --- a flipped bit ---

CGP_FAULT=flip:0U@5:7 run train $words --steps $steps --digest-every 1 --run flipped
run compare four flipped
check "a flip in the update of step 6: exit code 5" [ "$code" = 5 ]
check "a flip in the update of step 6: named" has "differs      step 6 is the first, after 5 equal" "$out"
check "a flip in the update: the fault is named" grep -qF 'CGP_FAULT: null and ["flip:0U@5:7"]' "$out"
check "a flip in the update: no loss" lacks '  loss  ' "$out"
check "a flip in the update: no gradient" lacks '  gradient  ' "$out"
check "a flip in the update: one tensor" [ "$(grep -c ' is the first, 1 of ' "$out")" = 1 ]
CGP_FAULT=flip:1B2@3:3 run train $words --steps $steps --digest-every 1 --run flipped --overwrite --stages 2
run compare four flipped
check "a flip in a backward of step 4: named" has "differs      step 4 is the first, after 3 equal" "$out"
check "a flip in a backward: no loss" lacks '  loss  ' "$out"

CGP_LOG=warn CGP_FAULT=flip:0SEND_F2,flip:W1,flip:0W1@x,flip:0U:,flip:1 run train $words --steps 1 --run refused --stages 2
check "five flips are not understood" [ "$(grep -c 'is not understood and does nothing' "$err")" = 5 ]

# --- every other step ---

run train $words --steps $steps --digest-every 3 --run third
run compare third four
check "every third step: equal" has "equal        5 steps, 3 to 15" "$out"
run train $words --steps 2 --digest-every 3 --run short
fails 1 "short/digests.bin and four/digests.bin have no digested step in common (choose --digest-every so that they do)" compare short four

# --- damaged files ---

damage() { # COMMAND.. : copy the run, with digests.bin filtered through COMMAND
    rm -rf damaged
    cp -r four damaged
    "$@" <four/digests.bin >damaged/digests.bin
}
damage head -c 100
fails 1 "damaged/digests.bin: expected a first line of at most ..." compare four damaged
damage head -c -1
fails 1 "damaged/digests.bin: ends within a record, with ..." compare four damaged
damage sed '1s/cgpipe_digests/cgpipe_digest_/'
fails 1 'damaged/digests.bin: expected {"cgpipe_digests": at its beginning' compare four damaged
damage sed '1s/"losses":1/"losses":9999999999/'
fails 1 "damaged/digests.bin: losses: expected ..." compare four damaged
damage sed '1s/"gradient"/"gradients"/'
fails 1 "damaged/digests.bin: tensors: expected a list of [name, part] with known parts..." compare four damaged
damage sed '1s/:1,/:2,/'
fails 1 "damaged/digests.bin: cgpipe_digests: expected ..." compare four damaged
damage cat
printf 'X' | dd of=damaged/digests.bin bs=1 seek=$(($(wc -c <four/digests.bin) - 100)) conv=notrunc 2>/dev/null
fails 1 "damaged/digests.bin: the record of step $steps is damaged" compare four damaged
damage python3 -c '
import hashlib, struct, sys
data = bytearray(sys.stdin.buffer.read())
at, size = data.index(10) + 1, int(sys.argv[1])
struct.pack_into("<d", data, at + 8, float("nan"))
data[at + size - 32:at + size] = hashlib.sha256(data[at:at + size - 32]).digest()
sys.stdout.buffer.write(data)' "$record"
printf 'X' | dd of=damaged/digests.bin bs=1 seek=$(($(wc -c <four/digests.bin) - 100)) conv=notrunc 2>/dev/null
run compare damaged four
check "records after the first difference are not read" [ "$code" = 5 ]
check "a loss that is not finite: named" grep -q '^  loss       not finite and [1-9]' "$out"
rm damaged/digests.bin
ln -s ../four/digests.bin damaged/digests.bin
fails 1 "damaged/digests.bin: is a link, expected a file of the run (put the file itself there)" compare four damaged

finish
