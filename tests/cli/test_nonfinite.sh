#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_nonfinite.sh SOURCE_DIR BUILD_DIR -- if a training computes numbers that are not finite, it
# ends before it saves them. In a validation, such numbers are only reported.
source "$(dirname "$0")/support.sh"

small="gpt2:layers=1,width=8,heads=2,vocab=11,seq=4 --data random --batch 2 --chunks 1"
first="is not finite, got"

run train $small --optimizer sgd --lr 1e39 --steps 1 --evaluate-every 1 --run at-once
check "weights that an update made infinite: exit code 1" exits 1
check "... the message names the step and the tensor" \
    grep -q "^cgpipe: step 1: transformer.wte.weight: $first -\{0,1\}inf at element 0 (nothing was saved)" "$err"
check "... and a way out" has "a smaller --lr or --clip" "$err"
check "... in one line" lines 1 "$err"
check "... and nothing is left of a run without a checkpoint" test ! -e at-once

run train $small --lr 1e5 --steps 30 --save-every 2 --stages 2 --run moments
check "--lr 1e5: exit code 1" exits 1
check "... the moments are looked at too" \
    grep -q "^cgpipe: step 2: transformer.*.exp_avg_sq: $first inf at element" "$err"

run train $small --steps 2 --run later
run train --resume --run later --lr 1e38 --steps 3
check "after a checkpoint: exit code 1" exits 1
check "... the message names a tensor" grep -q "^cgpipe: step 3: transformer.*: $first .*inf at element" "$err"
check "... the checkpoint stays" test "$(readlink later/latest) $(ls later | grep -c step)" = "step-00000002 2"
run train --resume --run later --lr 1e-3 --steps 12
check "... and training goes on from it with a smaller rate" exits 0

run train $small --optimizer sgd --lr 1e5 --steps 2 --evaluate-every 2 --run lost --json lost.json
check "weights that are finite and useless: exit code 0" exits 0
check "... their validation is in the line of the step" has "  val nan" "$out"
check "... their validation is printed" grep -q "^validation   loss nan over 2 sequences" "$out"
check "... and null in the JSON" grep -q '"validation_loss": null' lost.json
check "... and in the metrics" has '"validation_loss":null}' lost/metrics.jsonl

run train $small --optimizer sgd --lr 1e5 --clip 1e9 --steps 30 --run clipped
check "a step whose numbers are not finite: exit code 1" exits 1
check "... says which" grep -q "^cgpipe: step [0-9]*: .* not finite, got .* (a smaller --lr or --clip may help)$" "$err"
check "... in the program's words" test -z "$(grep cgp_ "$err")"

finish
