#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_check.sh SOURCE_DIR BUILD_DIR -- cgpipe check compares a step in one stage with a step in
# several stages.
source "$(dirname "$0")/support.sh"

small=gpt2:layers=2,width=16,heads=2,seq=8,vocab=32
for case in "$small --stages 2 --schedule zb-v --dropout 0.1" "$small --stages 3 --recompute always+selective --precision bf16" \
    "resnet:depth=8,image=16,classes=4 --stages 2 --schedule interleaved --deferred-batch-norm"; do
    run check $case --batch 5 --chunks 3 --json check.json
    check "check $case: exit code 0" exits 0
    check "check $case: the same" has "the same to the bit: loss " "$out"
    check "check $case: as JSON" test "$(jq -c '[.same, .gradients_different, .first_different]' check.json)" = '[true,0,null]'
done

# A schedule may add weight gradients from the last micro-batch to the first. Such sums differ by
# rounding from sums in the usual order.
echo '0F0,0F1,0F2,0I0,0I1,0I2,0W2,0W1,0W0' >descends.csv
run check $small --schedule descends.csv --batch 3 --json check.json
check "another order: exit code 1" exits 1
check "another order: which gradient, and where" has "gradient of lm_head.weight: " "$out"
check "another order: not the output or the loss" \
    test "$(jq -c '[.same, .output_same, .loss_same, .first_different]' check.json)" = '[false,true,true,"lm_head.weight"]'
# Check a custom model with 11 inputs, each with its own upper bound. Its three outputs are on two
# stages, and one output holds integers.
cc -O1 -Wall -Wextra -Werror -Wno-unused -shared -fPIC -o many.so -I"$source_dir/include" "$source_dir/tests/support/many_plugin.c" \
    -L"${program%/*}" -lcgpipe -lm
run check ./many.so --stages 3 --batch 5 --chunks 3
check "many inputs and outputs: exit code 0" exits 0
check "many inputs and outputs: all are compared" has ", 3 outputs, 13 gradients, " "$out"
run bench ./many.so --stages 2 --batch 4 --steps 2
check "many inputs: bench" exits 0

# The results of a model do not change if values of inner layers become outputs that precede the
# logits.
widened() { # MODEL FILE : write the model's graph to FILE, with two more outputs in front
    "$program" export "$1" --out "$work/graph.json" >"$out" 2>"$err" && jq '.outputs = [.nodes[0].output, .nodes[-2].output] + .outputs' "$work/graph.json" >"$2"
}
lines_of() { grep -E '^(weights_sha256|validation)' "$out"; }
images="--data shapes:size=16,validation=20 --batch 8 --chunks 2 --steps 3 --run images --overwrite --stages 3"
widened resnet:depth=8,image=16,classes=10 wide.json
run train resnet:depth=8,image=16,classes=10 $images
check "images: exit code 0" exits 0
lines_of >one.txt
check "images: top-1 is there" grep -q "top-1" one.txt
run train ./wide.json $images --evaluate-every 1
check "images, three outputs: exit code 0" exits 0
check "images, three outputs: the same weights and validation" diff one.txt <(lines_of)
run check ./wide.json --stages 3 --batch 5
check "images, three outputs: check" has ", 3 outputs, " "$out"
jq '.outputs |= .[1:2]' wide.json >features.json
run train ./features.json $images
check "images, features as the only output: the same loss, and no top-1 of them" \
    test "$code$(sed 's/, top-1.*//' one.txt)" = "0$(lines_of)"
text="--data text.txt --batch 8 --chunks 2 --steps 8 --lr 0.01 --overwrite --stages 2"
widened $model,vocab=256 wide.json
run train $model,vocab=256 $text --run text --sample 40 --prompt the
sample_of() { sed '1,/^sample of/d; /^report  /d' "$out"; }
sample_of >one.txt
run train ./wide.json $text --run wide --sample 40 --prompt the
check "text, three outputs: exit code 0" exits 0
check "text, three outputs: the same sample" diff one.txt <(sample_of)
"$program" sample text --prompt the --length 40 >one.txt
run sample wide --model ./wide.json --prompt the --length 40
check "text, three outputs: sample" cmp one.txt "$out"
jq '.outputs |= .[1:2]' wide.json >features.json
fails 2 "--sample: expected a model from tokens [T] to logits [T, V], got gpt2, whose loss takes no output (call cgp_model_output() with its logits)" \
    train ./features.json $text --run none --sample 5
jq '.outputs = [0]' wide.json >input.json
fails 1 "./input.json: outputs[0]: layer lm_head, output: is an input of the model, not a result" check ./input.json

# --data random draws tokens that are valid for both the model's input and its targets.
"$program" export gpt2:layers=1,width=16,heads=2,seq=8,vocab=40,tied=0 --out small.json 2>"$err" >"$out"
jq '(.parameters[] | select(.name == "transformer.wte.weight").shape) = [30, 16] | (.nodes[0].attributes.size) = 30' small.json >narrow.json
run train ./narrow.json --data random --batch 4 --steps 2 --run random
check "--data random: a smaller vocabulary of tokens than of logits" exits 0

run check $small --freeze '*wte*' --stages 2 --batch 4 --chunks 2
check "frozen parameters have no gradient to compare" exits 0
fails 2 "check: MODEL is missing (cgpipe check gpt2:layers=2)" check
fails 2 "--stages 9: the model has 6 layers ..." check $small --stages 9

# Make a step fail, in one stage and in two stages. A leak would make the address sanitizer print
# more lines.
for stages in 1 2; do
    export CGP_FAULT=fail:$((stages - 1))F0
    run check $small --stages $stages --batch 2 --chunks 1
    unset CGP_FAULT
    check "a step that fails in stage $stages fails" exits 1
    check "with lines of the program alone on standard error" test "$(grep -vc '^cgpipe: ' "$err")" = 0
done

finish
