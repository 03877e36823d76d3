#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_bad_samples.sh SOURCE_DIR BUILD_DIR -- a bad sample ends a training with exit code 4. The
# steps before the bad sample are saved. If the data are repaired and the run is resumed, the run
# ends with the weights of a run on good data.
build_dir=$(cd "$2" && pwd)
source "$(dirname "$0")/support.sh"

sha() { grep ^weights_sha256 "$out"; }
steps() { sed -n 's/^{"step":\([0-9]*\),.*}$/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
numbers() { seq "$@" | tr "\n" " "; }

# Each token in the files is two bytes long. The tokens have the numbers 10 and 48 to 57. The
# identity of the data covers the first and the last 64 KiB of a file, so bytes between these parts
# can be repaired.
seq 1 14200 | iconv -f LATIN1 -t UTF-16LE >good.bin
seq 200 240 | iconv -f LATIN1 -t UTF-16LE >good-val.bin
spoil() { printf '\377\377' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; } # FILE BYTE
reason() { echo "$PWD/$1: at byte $2: expected a token below 60, got 65535 (a larger vocabulary, or files of its own tokenizer)"; }
training="gpt2:layers=1,width=8,heads=2,vocab=60,seq=16 --data $PWD/train.bin --validation $PWD/val.bin --batch 4 --chunks 2 --dropout 0.1 --seed 2 --steps 9"

cp good.bin train.bin && cp good-val.bin val.bin
run train $training --save-every 3 --evaluate-every 3 --run whole
whole=$(sha)
check "without a bad token: exit code 0" exits 0

# --- in a step ---

bad_step() { # NAME OPTION... : train with a bad token in the sixth step
    local name=$1
    shift
    cp good.bin train.bin && spoil train.bin 76832
    run train $training --run stopped --overwrite "$@"
    check "$name: exit code 4" exits 4
    check "$name: step, file, byte, what is saved" test "$(cat "$err")" = "cgpipe: step 6: $(reason train.bin 76832); step 5 is saved"
    check "$name: the last good step is saved" test "$(readlink stopped/latest)" = step-00000005
    check "$name: a line each" test "$(steps stopped)" = "$(numbers 1 5)"
    run train --resume --run stopped
    check "$name, after a resume: exit code 4" exits 4
    check "$name, after a resume: told" test "$(cat "$err")" = "cgpipe: step 6: $(reason train.bin 76832); step 5 is saved"
    check "$name, after a resume: the checkpoint stays" test "$(readlink stopped/latest)" = step-00000005
    cp good.bin train.bin
    run train --resume --run stopped
    check "$name, mended: the weights of a run without it" test "$(sha)" = "$whole"
    check "$name, mended: a line each" test "$(steps stopped)" = "$(numbers 1 9)"
}
bad_step "a bad token before the first checkpoint" --save-every 0
bad_step "a bad token after a checkpoint" --save-every 3 --evaluate-every 3
bad_step "a bad token, in two stages" --save-every 4 --stages 2

cp good.bin train.bin
run train ${training/vocab=60/vocab=40} --run first
check "a bad token in the first step: exit code 4" exits 4
check "a bad token in the first step: told" grep -q "^cgpipe: step 1: $PWD/train.bin: at byte [0-9]*: expected a token below 40, got [0-9]* (.*)\$" "$err"
check "a bad token in the first step: no run is left" test ! -e first

# --- in a validation, which runs after the step was saved ---

bad_validation() { # NAME STEP OPTION...
    local name=$1 step=$2
    shift 2
    cp good-val.bin val.bin && spoil val.bin 100
    run train $training --run validated --overwrite "$@"
    check "$name: exit code 4" exits 4
    check "$name: told" test "$(cat "$err")" = "cgpipe: validation: $(reason val.bin 100); step $step is saved"
    check "$name: its step is saved" test "$(readlink validated/latest)" = "step-$(printf %08d "$step")"
    check "$name: a line each, up to its step" test "$(steps validated)" = "$(numbers 1 "$step")"
    cp good-val.bin val.bin
    run train --resume --run validated --new-data
    check "$name, mended: the run goes on" exits 0
}
bad_validation "a bad token of the validation" 3 --evaluate-every 3 --save-every 3
bad_validation "a bad token of the validation, no checkpoint due" 3 --evaluate-every 3 --save-every 0
bad_validation "a bad token of the last validation" 9
check "each validation is in the line of its step" \
    test "$(grep '"validation_loss":[0-9.]*}$' whole/metrics.jsonl | sed 's/,.*//' | tr '\n' ' ')" = '{"step":3 {"step":6 {"step":9 '

# --- a plug-in that cannot make a sample, or makes one that the model refuses ---

cc -O1 -shared -fPIC -o mine.so -I"$source_dir/include" "$source_dir/tests/support/model_plugin.c" -L"$build_dir" -lcgpipe_data -lcgpipe -lm
plugin="./mine.so:layers=1 --data plugin --batch 16 --steps 6 --save-every 0"
run train $plugin --run whole-plugin
whole=$(sha)
bad_sample() { # NAME VARIABLE MESSAGE : train with a bad sample at position 50, in step 4
    export "$2=50"
    run train $plugin --run plugin --overwrite
    unset "$2"
    check "$1: exit code 4" exits 4
    check "$1: one line" lines 1 "$err"
    check "$1: told" grep -q "^cgpipe: step 4: $3; step 3 is saved\$" "$err"
    run train --resume --run plugin --model ./mine.so
    check "$1, mended: the weights of a run without it" test "$(sha)" = "$whole"
}
bad_sample "a sample that is not there" NO_SAMPLE "own data: training sample [0-9]*: the disk is gone"
bad_sample "a label out of range" BAD_LABEL "input labels: sample 2, element 0 is [0-9]*, expected 0 to [0-9]* or the ignored one (layer head, cross_entropy)"

finish
