#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --recipe and --epochs on a directory of drawn images: what is refused, what the rates are, that a stop in between
# changes nothing.
#
#     bash test_recipe.sh SOURCE_DIR BUILD_DIR
build=$(cd "$2" && pwd)
source "$(dirname "$0")/support.sh"
resnet=resnet:depth=8,classes=10,image=32,width=4

fails 2 "--recipe imagenet-9: expected imagenet-90 (did you mean imagenet-90?)" \
    train $resnet --data shapes --recipe imagenet-9
fails 2 "--optimizer: cannot be with --recipe (it has its own)" \
    train $resnet --data shapes --recipe imagenet-90 --optimizer adam
fails 2 "--steps: cannot be with --epochs or --recipe" train $resnet --data shapes --epochs 2 --steps 9
fails 2 "--lr-schedule milestones: comes with --recipe (or step, for equal intervals)" \
    train $resnet --data shapes --lr-schedule milestones
fails 2 "--epochs: expected data that have an end (--steps N)" train $resnet --data shapes --epochs 2

# 10 classes of 5 images; a fifth of them, 10, for validation: 40 a pass, 5 mini-batches of 8.
"$build/tests/draw_directory" images 5 40
check "a directory of images" test "$(ls images | wc -l)" -eq 10
fails 2 "--batch 41: expected at most the 40 samples of an epoch" \
    train $resnet --data images:images --validation 0.2 --epochs 2 --batch 41

common="--data images:images --validation 0.2 --recipe imagenet-90 --epochs 9 --batch 8 --chunks 2 --save-every 5"
run train $resnet $common --run whole --json whole.json --verbose
check "the recipe: exit code 0" exits 0
check "the recipe: steps of 9 epochs" grep -q '"steps": 45,' whole.json
check "the recipe: a tenth after epochs 3, 6 and 8" has "lr 0.1, warm-up of 5 steps, times 0.1 after steps 15, 30, 40" "$out"
check "the recipe: weight decay of everything, Nesterov" has "0.0001 (norms and biases too), momentum 0.9 (Nesterov)" "$out"
rates_of() { sed -n 's/.*"lr": *\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl"; }
rates=$(rates_of whole | uniq | tr '\n' ' ')
check "the recipe: rates (batch 8 starts with all of it)" test "$(awk '{printf "%.4g %.4g %.4g %.4g", $1, $2, $3, $4}' <<<"$rates")" = "0.1 0.01 0.001 0.0001"
check "the recipe: validation after each epoch" test "$(grep -c '"top1"' whole/metrics.jsonl)" -ge 9

run train $resnet $common --run parts --deferred-batch-norm --stages 2
check "deferred batch norm: exit code 0" exits 0
run train $resnet $common --lr 0.4 --run warm
check "a larger rate: exit code 0" exits 0
rates=$(rates_of warm | head -6 | tr '\n' ' ')
check "a larger rate: begins with 0.1 for the first epoch's 5 steps" \
    test "$(awk '{printf "%.4g %.4g %.4g", $1, $5, $6}' <<<"$rates")" = "0.1 0.1 0.4"

# The directory's images come in the order of a run without a stop.
run train $resnet ${common/images:images/images:images\/} --minutes 0.0001 --run killed
run train --resume --run killed --json killed.json
check "stopped and resumed: exit code 0" exits 0
run train $resnet --data images:images --validation 0.2 --epochs 61 --batch 8 --lr-schedule cosine --warmup 301 --run cosine
check "cosine over 61 epochs, more steps than the default: exit code 0" exits 0
same() { test "$(grep -o "\"$1\": *\"[0-9a-f]*\"" whole.json)" = "$(grep -o "\"$1\": *\"[0-9a-f]*\"" killed.json)"; }
check "stopped and resumed: the same weights" same weights_sha256
check "stopped and resumed: the same running statistics" same state_sha256
finish
