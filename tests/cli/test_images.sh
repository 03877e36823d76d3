#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Image data sets on the command line. The test checks which errors are reported and how, and what
# training prints.
#
#     bash test_images.sh SOURCE_DIR BUILD_DIR
source "$(dirname "$0")/support.sh"

# --- options that do not fit together, before anything is read ---
fails 2 "--data shapes: sise: unknown key (did you mean size?)" train $model --data shapes:sise=32
fails 2 '--data shapes: masks: expected 0 or 1, got "2"' train $model --data shapes:masks=2
fails 2 '--data shapes: size: expected a whole number >= 0, got "x"' train $model --data shapes:size=x
fails 2 '--data shapes: expected key=value, got "big"' train $model --data shapes:big
fails 2 "--data images:: expected a directory after the colon" train $model --data images:
fails 2 "--data shapes: stands alone, got text.txt too" train $model --data shapes text.txt
fails 2 "--validation: cannot be with shapes, which has its own (shapes:validation=N sets their number)" \
    train $model --data shapes --validation 0.2
fails 2 "--validation: cannot be with mnist:d, which has its own (the files of its test set)" \
    train $model --data mnist:d --validation text.txt
fails 2 "--strict: expected --data images:DIR, got text.txt" train $model --data text.txt --strict
fails 2 "--workers: expected --data images:DIR, got shapes" train $model --data shapes --workers 3
fails 2 "--plain: expected --data images:DIR or cifar10:DIR, got mnist:d" \
    train $model --data mnist:d --plain

# --- missing files ---
fails 1 "d/data_batch_1.bin: no such file" train $model --data cifar10:d
fails 1 "d/train.bin: no such file" train $model --data cifar100:d
fails 1 "d/train-images-idx3-ubyte: no such file" train $model --data mnist:d
fails 1 "d: no such file" train $model --data images:d
fails 1 "images: workers are between 0 and 256, got 300" train $model --data images:d --workers 300
mkdir d
fails 1 "d: expected directories of images, one a class, got none" train $model --data images:d
mkdir d/train d/val
fails 1 "d/train: expected directories of images, one a class, got none" train $model --data images:d
fails 1 "--validation 0.2: d has a directory val for that (leave it out)" \
    train $model --data images:d --validation 0.2

# --- data that do not fit the model ---
fails 1 '--data shapes: gives f32 [32, 32, 3], expected i32 [16], the input "tokens" of gpt2 (...' \
    train $model --data shapes
fails 1 "shapes: size is between 16 and 1024 pixels, got 8" train $model --data shapes:size=8

resnet=resnet:depth=20,classes=10,image=32,width=4
fails 1 '--data shapes:size=64: gives f32 [64, 64, 3], expected f32 [32, 32, 3], the input "images" of resnet (...' \
    train $resnet --data shapes:size=64
fails 1 '--data shapes:masks=1: gives f32 [32, 32, 1], expected i32 [1], the input "labels" of resnet (...' \
    train $resnet --data shapes:masks=1
fails 1 '--data shapes: has 10 classes, expected the 7 of resnet (classes=10 in MODEL)' \
    train resnet:depth=20,classes=7,image=32,width=4 --data shapes
fails 1 '--data text.txt: gives tokens, expected f32 [32, 32, 3], the input "images" of resnet (...' \
    train $resnet --data text.txt

# --- training prints the metrics that suit the kind of target ---
small="--batch 8 --chunks 2 --steps 2 --evaluate-every 1"
run train $resnet --data shapes:validation=20 $small --run labels --json labels.json
check "train on shapes: exit code 0" exits 0
check "train on shapes: says so" has "drawn shapes, without end, 20 for validation" "$out"
check "train on shapes: top-1 and top-5 of all images" grep -q "^validation .* over 20 images, top-1 .* top-5" "$out"
check "train on shapes: JSON" keys labels.json validation_loss validation_images top1 top5 images_per_second
check "train on shapes: no IoU" test "$(grep -c iou labels.json)" -eq 0
check "train on shapes: metrics of every evaluation" test "$(grep -c '"top1":.*"top5":' labels/metrics.jsonl)" -eq 2
run train unet:B=1,C=4,depth=2,image=32 --data shapes:validation=20 $small --run masks --json masks.json
check "train on masks: exit code 0" exits 0
check "train on masks: IoU of all images" grep -q "^validation .* over 20 images, IoU" "$out"
check "train on masks: JSON" keys masks.json validation_loss validation_images iou
check "train on masks: no top-1" test "$(grep -c top1 masks.json)" -eq 0

# --- a run resumes with the next images, even with another number of stages ---
run train $resnet --data shapes:validation=20 --batch 8 --chunks 2 --steps 4 --run whole --json whole.json
run train $resnet --data shapes:validation=20 --batch 8 --chunks 2 --steps 2 --run parts
run train --resume --run parts --steps 4 --stages 2 --json parts.json
check "resumed on shapes: exit code 0" exits 0
check "resumed on shapes: the same weights" \
    test "$(value weights_sha256 parts.json)" = "$(value weights_sha256 whole.json)"

# --- CIFAR and MNIST files with black images ---
mkdir arrays
for i in 1 2 3 4 5; do head -c 3073 /dev/zero >arrays/data_batch_$i.bin; done
head -c 6146 /dev/zero >arrays/test_batch.bin
for split in train t10k; do
    { printf '\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34'; head -c 1568 /dev/zero; } >arrays/$split-images-idx3-ubyte
    printf '\0\0\10\1\0\0\0\2\7\3' >arrays/$split-labels-idx1-ubyte
done
run train $resnet --data cifar10:arrays $small --run cifar
check "train on CIFAR-10: exit code 0" exits 0
check "train on CIFAR-10: counts" has "5 images, 2 for validation" "$out"
run train $resnet --data mnist:arrays $small --run mnist
check "train on MNIST at the model's size and channels: exit code 0" exits 0
run train --resume --run mnist --steps 3
check "resumed on MNIST from the recorded directory: exit code 0" exits 0
run train --data mnist:arrays --resume --run cifar --steps 3
check "resumed with another set: refused" exits 1
check "resumed with another set: the reason" has "data: differ from the run's" "$err"

# --- a data path that begins with a known prefix, but is a file ---
cp text.txt shapes
run train $model --data ./shapes --batch 4 --steps 1 --run file
check "./shapes is a text file" exits 0

finish
