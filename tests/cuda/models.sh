#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# models.sh SOURCE_DIR BUILD_DIR -- train the four model families on one, two and four cuda-host
# devices. All weights must be equal. On several devices, streams are delayed, and the threads of a
# block run in ascending, descending and shuffled order. The script is run nightly or by hand,
# because it is too slow for `make test`.
# shellcheck source=tests/cli/support.sh
. "$(dirname "$0")/../cli/support.sh"
export CGP_PLUGIN_PATH=$2/tests/plugins

models=("gpt2:layers=4,width=64,heads=4,seq=64 --data text.txt --batch 8 --chunks 4 --dropout 0.1 --clip 1"
    "resnet:depth=14,width=8,classes=10,image=32 --data shapes:size=32,validation=8 --batch 8 --chunks 4"
    "unet:B=1,C=4,depth=2,image=32 --data shapes:size=32,masks=1,validation=8 --batch 4 --chunks 2"
    "amoebanetd:L=3,D=16,image=64,classes=10 --data shapes:size=64,validation=8 --batch 4 --chunks 2")

weights() { jq -er .weights_sha256 "$1.json" || echo "none of $1"; }
train() { # NAME ORDER STAGES MODEL_AND_OPTIONS...
    local delay=0
    [ "$3" = 1 ] || delay=100000
    CGP_CUDA_HOST_ORDER=$2 CGP_CUDA_HOST_DELAY=$delay run train "${@:4}" --steps 2 --run "$1" --json "$1.json" --stages "$3" \
        --devices "cuda-host*$3" --quiet
}

for words in "${models[@]}"; do
    read -ra model <<<"$words"
    name=${model[0]%%:*}
    train "$name-1" ascending 1 "${model[@]}"
    check "$name on one device" exits 0
    one=$(weights "$name-1")
    for order in ascending descending shuffled; do
        for stages in 2 4; do
            train "$name-$order-$stages" $order $stages "${model[@]}"
            check "$name, $stages stages, threads $order: the same bits" test "$(weights "$name-$order-$stages")" = "$one"
        done
    done
done
finish
