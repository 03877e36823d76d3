#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_tensorboard.sh SOURCE_DIR BUILD_DIR -- train --tensorboard writes the numbers of metrics.jsonl
# as event files. They are read by tests/cli/event_files.py and, if it is installed, by PyPI's
# tensorboard. A resumed or killed run has each step once.
source "$(dirname "$0")/support.sh"

python=${PYTHON:-python3}
read_events() { "$python" "$source_dir/tests/cli/event_files.py" "$@"; }
tiny=gpt2:layers=1,width=8,heads=2,vocab=256,seq=8
small="--data text.txt --batch 2 --chunks 1 --validation 0.01"
# shellcheck disable=SC2086 # options, with spaces between
train() { run train $tiny $small "$@"; }
files() { find "$1" -name 'events.out.tfevents.*.cgpipe' | wc -l; }
# Return true if each step from 1 to N has a loss, once and in order.
steps() { [ "$(read_events scalars "$1" | jq -c '[.loss[][0]]')" = "$(jq -nc "[range(1; $2 + 1)]")" ]; }
same() { read_events same "$1/tb" "$1/metrics.jsonl"; }

# --- a run, and its resumes ---

train --steps 10 --run one --tensorboard one/tb --clip 1 --evaluate-every 5 --save-every 4 --digest-every 2
check "a run" exits 0
check "has one file" test "$(files one/tb)" = 1
check "with the numbers of metrics.jsonl" same one
check "which are these" test "$(read_events scalars one/tb | jq -c keys)" = '["bubble","gradient_norm","loss","lr","seconds","tokens_per_second","validation_loss"]'
check "run.json has the directory" test "$(jq -r .options.tensorboard one/run.json)" = "$PWD/one/tb"
cp -al one linked
before=$(cat linked/tb/* | sha256sum)
run train --resume --run one --from-step 8 --steps 14
check "it resumes" exits 0
check "into another file" test "$(files one/tb)" = 2
check "and each step is there once" steps one/tb 14
check "and the right numbers" same one
check "the start is marked" test "$(read_events starts one/tb)" = 9
run train --resume --run one --from-step 12 --steps 16
check "it resumes at an earlier step" exits 0
check "no step is there twice" steps one/tb 16
check "and all are right" same one
check "both starts are marked" test "$(read_events starts one/tb)" = "9 13"
run train --resume --run one --from-step 14 --steps 15
run train --resume --run one --steps 17
check "steps that were cut off are there once" steps one/tb 17
check "hard links of the old files did not change" test "$(cat linked/tb/* | sha256sum)" = "$before"

# --- a kill, and damage ---

for moment in 1 2 3; do
    "$program" train $tiny --data text.txt --batch 2 --chunks 1 --steps 1000000 --save-every 300 --evaluate-every 500 --run "killed$moment" \
        --tensorboard "killed$moment/tb" >"$out" 2>"$err" &
    process=$!
    for _ in $(seq 600); do [ -e "killed$moment/latest" ] && break; sleep 0.1; done
    sleep "0.$((RANDOM % 5))"
    kill -9 "$process"
    wait "$process" 2>/dev/null
    check "killed: no record is cut off" test "$(read_events scalars "killed$moment/tb" | jq '.loss | length > 300')" = true
    last=$(basename "$(readlink "killed$moment/latest")" | sed 's/step-0*//')
    run train --resume --run "killed$moment" --steps $((last + 7)) --save-every 300
    check "and resumed: each step is there once" steps "killed$moment/tb" $((last + 7))
    check "with the numbers of metrics.jsonl" same "killed$moment"
done

damage() { # damage WHAT COMMAND... : change the last file of a run of 3 steps, then resume
    train --steps 3 --run "$1" --tensorboard "$1/tb" --save-every 1
    local file
    file=$(find "$1/tb" -type f)
    "${@:2}" "$file"
    run train --resume --run "$1" --steps 5
    check "$1: it resumes" exits 0
    check "$1: its records are whole" test -n "$(read_events starts "$1/tb")"
}
append() { printf '\30\0\0\0\0\0\0\0\1\2\3' >>"$1"; }
zeros() { head -c 4096 /dev/zero >>"$1"; }
shorter() { truncate -s -5 "$1"; }
damage appended append
check "appended: all steps are there" steps appended/tb 5
damage zeros zeros
check "zeros: all steps are there" steps zeros/tb 5
damage shorter shorter
check "shorter: all steps are there but the damaged one" test "$(read_events scalars shorter/tb | jq -c '[.loss[][0]]')" = '[1,2,4,5]'

# --- other numbers, other data ---

run train gpt2:layers=1,width=8,heads=2,vocab=11,seq=4 --data random --batch 2 --chunks 1 --optimizer sgd --lr 1e5 --steps 2 \
    --evaluate-every 2 --run useless --tensorboard useless/tb
check "a validation loss that is not finite" has '"validation_loss":null' useless/metrics.jsonl
check "is NaN" same useless
run train resnet:depth=8,classes=10,image=16,width=4 --data shapes:size=16,validation=8 --batch 2 --chunks 1 --steps 2 --evaluate-every 1 --run images --tensorboard images/tb
check "a run on images" exits 0
check "has its accuracies" same images
check "which are these" test "$(read_events scalars images/tb | jq -c '[keys[] | select(test("top|images"))]')" = '["images_per_second","top1","top5"]'

# --- refusals ---

fails 1 "--tensorboard one/tb: has event files of a run already (another directory, or --overwrite deletes them)" \
    train $tiny --data text.txt --steps 1 --run two --tensorboard one/tb
train --steps 2 --run two
fails 1 "--tensorboard one/tb: has event files of a run already ..." train --resume --run two --steps 3 --tensorboard one/tb
check "the files stay" steps one/tb 17
fails 1 "--tensorboard text.txt: is not a directory, expected one, or none yet" train $tiny --data text.txt --steps 1 --run three --tensorboard text.txt
fails 1 "--tensorboard no/where: cannot be made (no: No such file or directory)" train $tiny --data text.txt --steps 1 --run three --tensorboard no/where
fails 2 "--tb: unknown option (did you mean --tensorboard?)" train $tiny --tb x
run train --resume --run two --steps 4 --tensorboard two-tb
check "a run takes it up later" test "$(read_events scalars two-tb | jq -c '[.loss[][0]]')" = '[3,4]'
touch two-tb/events.other
train --steps 2 --run two --tensorboard two-tb --overwrite
check "--overwrite replaces the files" steps two-tb 2
check "but no file of another program" test -e two-tb/events.other -a "$(files two-tb)" = 1
ln -s "$PWD/text.txt" two-tb/events.out.tfevents.5.x.1.cgpipe
run train --resume --run two --steps 3
check "a link is not followed" exits 1
check "and the message names it" has "two-tb/events.out.tfevents.5.x.1.cgpipe: " "$err"
mkdir empty-tb
CGP_FAULT=fail:0F0 train --steps 2 --run failed --tensorboard new-tb
check "a start that fails leaves nothing" test "$code" = 1 -a ! -e failed -a ! -e new-tb
CGP_FAULT=fail:0F0 train --steps 2 --run failed --tensorboard empty-tb
check "but a directory that was there" test "$code$(ls empty-tb)" = 1
CGP_FAULT=fail:0F0 train --steps 2 --run failed --tensorboard failed/tb
check "and nothing inside of a run" test "$code" = 1 -a ! -e failed

# --- PyPI's tensorboard ---

if read_events importable; then
    for directory in one/tb useless/tb images/tb killed1/tb zeros/tb; do
        check "tensorboard reads $directory" test "$(read_events tensorboard $directory)" = "$(read_events scalars $directory)"
    done
else
    echo "skip: PyPI's tensorboard (not installed)"
fi
finish
