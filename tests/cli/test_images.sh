#!/usr/bin/env bash
# Image sets on the command line: what is refused, and how it is said.
#
#     bash test_images.sh SOURCE_DIR BUILD_DIR
source "$(dirname "$0")/support.sh"

# --- words that do not go together, before anything is read ---
fails 2 "--data shapes: sise: unknown key (did you mean size?)" train $model --data shapes:sise=32
fails 2 '--data shapes: masks: expected 0 or 1, got "2"' train $model --data shapes:masks=2
fails 2 '--data shapes: size: expected a whole number >= 0, got "x"' train $model --data shapes:size=x
fails 2 '--data shapes: expected key=value, got "big"' train $model --data shapes:big
fails 2 "--data images:: expected a folder after the colon" train $model --data images:
fails 2 "--data shapes: stands alone, got text.txt too" train $model --data shapes text.txt
fails 2 "--validation: cannot be with shapes, which has its own (shapes:validation=N says how many)" \
    train $model --data shapes --validation 0.2
fails 2 "--validation: cannot be with mnist:d, which has its own (the files of its test set)" \
    train $model --data mnist:d --validation text.txt
fails 2 "--strict: expected --data images:FOLDER, got text.txt" train $model --data text.txt --strict
fails 2 "--workers: expected --data images:FOLDER, got shapes" train $model --data shapes --workers 3
fails 2 "--plain: expected --data images:FOLDER or cifar10:FOLDER, got mnist:d" \
    train $model --data mnist:d --plain

# --- files that are not there ---
fails 1 "d/data_batch_1.bin: no such file" train $model --data cifar10:d
fails 1 "d/train.bin: no such file" train $model --data cifar100:d
fails 1 "d/train-images-idx3-ubyte: no such file" train $model --data mnist:d
fails 1 "d: no such file" train $model --data images:d
fails 1 "images: workers are between 0 and 256, got 300" train $model --data images:d --workers 300
mkdir d
fails 1 "d: expected folders of images, one a class, got none" train $model --data images:d
mkdir d/train d/val
fails 1 "d/train: expected folders of images, one a class, got none" train $model --data images:d
fails 1 "--validation 0.2: d has a folder val for that (leave it out)" \
    train $model --data images:d --validation 0.2

# --- data that the model does not take ---
fails 1 '--data shapes: gives f32 [32, 32, 3], expected i32 [16], the input "tokens" of gpt2 (...' \
    train $model --data shapes
fails 1 "shapes: size is between 16 and 1024 pixels, got 8" train $model --data shapes:size=8

# --- a file of that name ---
cp text.txt shapes
run train $model --data ./shapes --batch 4 --steps 1 --run file
check "./shapes is a text file" exits 0

finish
