#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Test the recipes in recipes/ and the options that they use: --epochs, values in epochs, learning
# rates. Stopping and resuming changes no bit. Runs that an older version began with --recipe can be
# resumed.
#
#     bash test_recipe.sh SOURCE_DIR BUILD_DIR
build=$(cd "$2" && pwd)
source "$(dirname "$0")/support.sh"
resnet=resnet:depth=8,classes=10,image=32,width=4
imagenet=$source_dir/recipes/resnet101-imagenet.yaml
old=$source_dir/tests/data/run-0.1-recipe

# --- every recipe plans, names itself, and trains for a few steps ---

for recipe in "$source_dir"/recipes/*.yaml; do
    name=$(basename "$recipe")
    run plan --config "$recipe" --json plan.json
    check "$name: planned" exits 0
    check "$name: its batch is the plan's" test "$(sed -n 's/^batch: *\([0-9]*\).*/\1/p' "$recipe")" = "$(value batch plan.json)"
    check "$name: its comment has the command" has "cgpipe train --config recipes/$name" "$recipe"
    check "$name: its comment has the source" grep -q '^# Sources\{0,1\}: ' "$recipe"
done
check "there are five" test "$(find "$source_dir/recipes" -name '*.yaml' | wc -l)" -eq 5
tiny="--batch 8 --chunks 2 --stages 1 --steps 3 --evaluate-every 2 --save-every 0"
run train --config "$source_dir/recipes/resnet20-cifar10.yaml" --data shapes:validation=8 $tiny --run cifar
check "resnet20-cifar10 trains" exits 0
run train --config "$source_dir/recipes/gpt2-small.yaml" gpt2:layers=1,width=16,heads=1,seq=16,tied=1 --data text.txt $tiny --warmup 1 --run small
check "gpt2-small trains, in small" exits 0
run train --config "$source_dir/recipes/unet.yaml" unet:B=1,C=4,depth=2,image=32 --data shapes:masks=1,validation=8 $tiny --run unet
check "unet trains, in small" exits 0
run train --config "$source_dir/recipes/amoebanetd.yaml" amoebanetd:L=3,D=16,classes=10,image=32 --data shapes:validation=8 $tiny --run amoebanetd
check "amoebanetd trains, in small" exits 0

# --- what is refused ---

fails 2 "--recipe: unknown option (did you mean --config recipes/resnet101-imagenet.yaml?)" \
    train $resnet --data shapes --recipe imagenet-90
fails 2 "--steps: cannot be with --epochs (leave out one)" train $resnet --data shapes --epochs 2 --steps 9
fails 2 "--lr-schedule milestones: needs --lr-milestones N,.." train $resnet --data shapes --lr-schedule milestones
fails 2 "--lr-milestones: expected --lr-schedule milestones, got constant" train $resnet --data shapes --lr-milestones 5
milestones() { fails 2 "$1" train $resnet --data shapes --lr-schedule milestones --lr-milestones "$2"; }
milestones '--lr-milestones: expected at most 8 steps or epochs (30ep), each >= 1, got "5e"' 4,5e
milestones '--lr-milestones: expected at most 8 steps or epochs (30ep), each >= 1, got "0"' 0,5
milestones "lr schedule: milestones are expected to rise from 1 on, got 5 after 5" 5,5
milestones '--lr-milestones: expected at most 8 steps or epochs (30ep), each >= 1, got "9"' 1,2,3,4,5,6,7,8,9
fails 2 '--warmup 4epochs: expected a whole number >= 0 of steps, or of epochs (4ep), got "4epochs"' \
    train $resnet --data shapes --warmup 4epochs
fails 2 "--warmup 9999999999999999999: expected at most 9007199254740992" train $resnet --data shapes --warmup 9999999999999999999
fails 2 "--epochs: expected data that have an end (--steps N)" train $resnet --data shapes --epochs 2
fails 2 "--warmup: expected data that have an end (steps instead of epochs)" train $resnet --data shapes --warmup 2ep
fails 2 "--lr-milestones: expected data that have an end (steps instead of epochs)" \
    train $resnet --data shapes --lr-schedule milestones --lr-milestones 3,4ep

# --- the former --recipe imagenet-90, by its run file: bit-equal learning rates ---

rates_of() { jq -c .lr "$1/metrics.jsonl" | uniq -c | sed 's/^ *//'; }
published() { grep -v '^#' "$old/rates-$1.txt"; }
bytes=gpt2:layers=1,width=8,heads=1,seq=8
run train --config "$imagenet" $bytes --data text.txt --batch 512 --stages 1 --run ninety --quiet
check "90 epochs: exit code 0" exits 0
check "90 epochs of a batch of 512: the learning rates of 0.1.0" diff <(published 90) <(rates_of ninety)
cp "$source_dir/tests/data/run-0.1/text.txt" old.txt
nine="--epochs 9 --warmup 1ep --lr-milestones 3ep,6ep,8ep"
run train --config "$imagenet" $bytes --data old.txt --batch 8 --lr 0.4 --stages 1 $nine --run nine --quiet
check "9 epochs: the learning rates of 0.1.0" diff <(published 9) <(rates_of nine)
resumed() { # resumed WORDS... : resume a run that 0.1.0 began with --recipe
    rm -rf resumed && cp -r "$old/run" resumed
    run train --resume --run resumed --data old.txt "$@"
}
resumed
check "a run of 0.1.0 with --recipe goes on: exit code 0" exits 0
check "a run of 0.1.0 with --recipe goes on: its learning rates" diff <(published 9) <(rates_of resumed)
check "a run of 0.1.0 with --recipe goes on: no option changed" test "$(grep -c changed "$out")" = 0
run train --resume --run resumed --data old.txt --quiet
check "a run of 0.1.0 with --recipe is resumed again" exits 0
resumed --lr-schedule constant --warmup 0 --quiet
check "a run of 0.1.0 with --recipe takes other learning rates" test "$(rates_of resumed | tail -n 1)" = "62 0.4"
sed 's/"momentum": 0.9[0-9]*/"momentum": 0.8/' "$old/run/run.json" >edited.json
rm -rf resumed && cp -r "$old/run" resumed && cp edited.json resumed/run.json
run train --resume --run resumed --data old.txt
check "a run of 0.1.0 that was edited is refused" grep -q "momentum is 0.8.*, the checkpoint was written with 0.9" "$err"

# --- on a directory of images ---

# There are 10 classes with 5 images each. Among these 50 images, 10 are for validation. So an epoch
# consists of 40 images, in 5 mini-batches of 8.
"$build/tests/draw_directory" images 5 40
check "a directory of images" test "$(ls images | wc -l)" -eq 10
fails 2 "--batch 41: expected at most the 40 samples of an epoch" \
    train $resnet --data images:images --validation 0.2 --epochs 2 --batch 41

common="--config $imagenet --data images:images --validation 0.2 --stages 1 --recompute never $nine --batch 8 --chunks 2 --save-every 1ep"
run train $resnet $common --run whole --json whole.json --verbose
check "the recipe: exit code 0" exits 0
check "the recipe: steps of 9 epochs" grep -q '"steps": 45,' whole.json
check "the recipe: a tenth after epochs 3, 6 and 8" has "lr 0.1, warm-up of 5 steps, times 0.1 after steps 15, 30, 40" "$out"
check "the recipe: weight decay of everything, Nesterov" has "0.0001 (norms and biases too), momentum 0.9 (Nesterov)" "$out"
rates=$(rates_of whole | sed 's/^[0-9]* //' | tr '\n' ' ')
check "the recipe: rates (batch 8 starts with all of it)" test "$(awk '{printf "%.4g %.4g %.4g %.4g", $1, $2, $3, $4}' <<<"$rates")" = "0.1 0.01 0.001 0.0001"
check "the recipe: validation after each epoch" test "$(grep -c '"top1"' whole/metrics.jsonl)" -eq 9
check "the recipe: a checkpoint an epoch" test "$(ls -d whole/step-*)" = "$(printf 'whole/step-%08d\n' 40 45)"

run train $resnet $common --run parts --deferred-batch-norm --stages 2 --balance flops
check "deferred batch norm: exit code 0" exits 0
run train $resnet $common --lr 0.4 --run warm
check "a larger rate: exit code 0" exits 0
check "a larger rate: begins with 0.1 for the first epoch's 5 steps" test "$(rates_of warm | head -n 2 | tr '\n' ' ')" = "5 0.1 10 0.4 "

# A resumed run reads the images in the same order as an uninterrupted run.
run train $resnet ${common/images:images/images:images\/} --minutes 0.0001 --run killed
run train --resume --run killed --json killed.json
check "stopped and resumed: exit code 0" exits 0
run train $resnet --data images:images --validation 0.2 --epochs 61 --batch 8 --lr-schedule cosine --warmup 301 --run cosine
check "cosine over 61 epochs, more steps than the default: exit code 0" exits 0
same() { test "$(grep -o "\"$1\": *\"[0-9a-f]*\"" whole.json)" = "$(grep -o "\"$1\": *\"[0-9a-f]*\"" killed.json)"; }
check "stopped and resumed: the same weights" same weights_sha256
check "stopped and resumed: the same running statistics" same state_sha256

# A run that began with --epochs may be resumed with --steps.
run train --resume --run killed --steps 47 --json more.json
check "--steps anew takes the place of a run's epochs" test "$code $(value steps more.json) $(value epochs more.json)" = "0 47 null"
finish
