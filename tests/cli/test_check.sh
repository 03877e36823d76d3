#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_check.sh SOURCE_DIR BUILD_DIR -- cgpipe check: one step in one stage and in several.
source "$(dirname "$0")/support.sh"

small=gpt2:layers=2,width=16,heads=2,seq=8,vocab=32
for case in "$small --stages 2 --schedule zb-v --dropout 0.1" "$small --stages 3 --recompute always+selective --precision bf16" \
    "resnet:depth=8,image=16,classes=4 --stages 2 --schedule interleaved --deferred-batch-norm"; do
    run check $case --batch 5 --chunks 3 --json check.json
    check "check $case: exit code 0" exits 0
    check "check $case: the same" has "the same to the bit: loss " "$out"
    check "check $case: as JSON" test "$(jq -c '[.same, .gradients_different, .first_different]' check.json)" = '[true,0,null]'
done

# Weight gradients that add up from the last micro-batch to the first are others, by rounding.
echo '0F0,0F1,0F2,0I0,0I1,0I2,0W2,0W1,0W0' >descends.csv
run check $small --schedule descends.csv --batch 3 --json check.json
check "another order: exit code 1" exits 1
check "another order: which gradient, and where" has "gradient of lm_head.weight: " "$out"
check "another order: not the output or the loss" \
    test "$(jq -c '[.same, .output_same, .loss_same, .first_different]' check.json)" = '[false,true,true,"lm_head.weight"]'
fails 2 "check: MODEL is missing (cgpipe check gpt2:layers=2)" check
fails 2 "--stages 9: the model has 6 layers ..." check $small --stages 9

finish
