#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_train.sh SOURCE_DIR BUILD_DIR -- train on one cuda-host device, on two devices, and on
# two devices with the same ordinal. The weights are bit-identical, even with delayed streams and
# with any order of threads. Losses are close to those of the cpu backend. A stage can be on a cpu
# device.
# shellcheck source=tests/cli/support.sh
. "$(dirname "$0")/../cli/support.sh"
export CGP_PLUGIN_PATH=$2/tests/plugins

gpt2="gpt2:layers=2,width=32,heads=2,seq=32 --data text.txt --steps 2 --batch 4 --chunks 2 --optimizer adamw --dropout 0.1 --clip 1"
resnet="resnet:depth=8,width=4,classes=10,image=32 --data shapes:size=32,validation=8 --steps 2 --batch 4 --chunks 2"

train() { # NAME MODEL_AND_OPTIONS DEVICES...
    # shellcheck disable=SC2086
    run train $2 --run "$1" --json "$1.json" --devices "${@:3}" --quiet
}
weights() { jq -er .weights_sha256 "$1.json" || echo "none of $1"; }

# Under a sanitizer only these trainings run, because a sanitizer makes trainings slow.
if grep -q '^CGP_SANITIZE:[A-Z]*=.' "$2/CMakeCache.txt"; then
    train few-1 "$gpt2" cuda-host --stages 1
    CGP_CUDA_HOST_ORDER=shuffled CGP_CUDA_HOST_DELAY=200000 train few-2 "$gpt2" cuda-host:0,cuda-host:2 --stages 2
    check "two ordinals, late streams, threads shuffled" test "$(weights few-2)" = "$(weights few-1)"
    train few-bf16 "$gpt2 --precision bf16" cuda-host:1,cuda-host:0 --stages 2
    check "in bf16, two that do not reach each other" test "$code" = 0
    finish
fi

for model in gpt2 resnet; do
    options=${!model}
    train $model-1 "$options" cuda-host --stages 1
    check "$model on one device" test "$code" = 0
    check "$model: planned, allocated, and apart the host's and the driver's bytes" test "$(jq '.devices[0] |
        .planned_bytes == .allocated_bytes and .host_bytes > 0 and .driver_bytes == (312 * 1048576)' $model-1.json)" = true
    one=$(weights $model-1)
    train $model-2 "$options" 'cuda-host*2' --stages 2
    check "$model: two devices of one ordinal have the same bits" test "$(weights $model-2)" = "$one"
    CGP_CUDA_HOST_ORDER=shuffled CGP_CUDA_HOST_DELAY=200000 train $model-peers "$options" cuda-host:0,cuda-host:2 --stages 2
    check "$model: two ordinals, late streams, threads shuffled" test "$(weights $model-peers)" = "$one"
    CGP_CUDA_HOST_ORDER=descending train $model-staged "$options" cuda-host:1,cuda-host:0 --stages 2 --schedule gpipe
    check "$model: two that do not reach each other, threads descending" test "$(weights $model-staged)" = "$one"
    train $model-cpu "$options" cpu --stages 1
    check "$model: losses are near the cpu's" test "$(jq -s '(.[0].loss_last - .[1].loss_last) | fabs < 1e-4' $model-1.json $model-cpu.json)" = true
done
run devices --json devices.json
check "cgpipe devices: what the driver takes before a kernel has run" test "$(jq -c '[.backends[] | .name as $name | .devices[] |
    select(.ordinal < 2) | [$name, .driver_bytes]]' devices.json)" = '[["cpu",null],["ref",null],["cuda-host",314572800],["cuda-host",314572800]]'
train mixed "$gpt2" cuda-host,cpu --stages 2
check "beside the cpu" test "$code" = 0
check "the record has the plug-in" test "$(jq -c '.plugins | map([.name, .sha256])' mixed/run.json)" = \
    "[[\"cuda-host\",\"$(sha256sum <"$CGP_PLUGIN_PATH/libcgpipe-cuda-host.so" | cut -c1-64)\"]]"

# Train in bf16 with the fake cuBLASLt, and then with the backend's own kernels instead.
for model in gpt2 resnet; do
    options="${!model} --precision bf16"
    train $model-bf16-1 "$options" cuda-host --stages 1
    check "$model in bf16 on one device" test "$code" = 0
    CGP_CUDA_HOST_ORDER=shuffled train $model-bf16-2 "$options" cuda-host:0,cuda-host:2 --stages 2
    check "$model in bf16: two devices have the same bits" test "$(weights $model-bf16-2)" = "$(weights $model-bf16-1)"
    train $model-bf16-cpu "$options" cpu --stages 1
    check "$model in bf16: losses are near the cpu's" \
        test "$(jq -s '(.[0].loss_last - .[1].loss_last) | fabs < 0.02' $model-bf16-1.json $model-bf16-cpu.json)" = true
    export CGP_CUDA_HOST_ALGORITHMS=0
    train $model-own-1 "$options" cuda-host --stages 1
    train $model-own-2 "$options" 'cuda-host*2' --stages 2
    unset CGP_CUDA_HOST_ALGORITHMS
    check "$model in bf16, own kernels: two devices have the same bits" test "$(weights $model-own-2)" = "$(weights $model-own-1)"
    check "$model in bf16: own kernels are not cuBLASLt" test "$(weights $model-own-1)" != "$(weights $model-bf16-1)"
done

# With tf32, slots have the same size as with f32, but weights differ. Without cuBLASLt, tf32 gives
# the same weights as f32.
train tf32-1 "$gpt2 --precision tf32" cuda-host --stages 1
check "in tf32 on one device, with the slots of f32" test "$code-$(jq '.devices[0].saved_slot_bytes' tf32-1.json)" = \
    "0-$(jq '.devices[0].saved_slot_bytes' gpt2-1.json)"
CGP_CUDA_HOST_ORDER=shuffled train tf32-2 "$gpt2 --precision tf32" cuda-host:0,cuda-host:2 --stages 2 --schedule gpipe
check "in tf32: two devices have the same bits" test "$(weights tf32-2)" = "$(weights tf32-1)"
check "tf32 is not f32" test "$(weights tf32-1)" != "$(weights gpt2-1)"
check "in tf32: losses are near those of f32" test "$(jq -s '(.[0].loss_last - .[1].loss_last) | fabs < 1e-3' tf32-1.json gpt2-1.json)" = true
check "in tf32: run.json has it" test "$(jq -r .options.precision tf32-1/run.json)" = tf32
CGP_CUBLASLT=off train tf32-own "$gpt2 --precision tf32" cuda-host --stages 1
check "tf32 without cuBLASLt has the bits of f32" test "$(weights tf32-own)" = "$(weights gpt2-1)"
fails 2 "precision: expected devices that multiply in tf32, such as cuda:0, got cpu (f32 or bf16 there)" \
    plan gpt2:layers=2,width=32,heads=2,seq=32 --devices cuda-host,cpu --stages 2 --precision tf32
fails 2 "cuda-host: expected ordinal 0 to 7, got 8" train gpt2:layers=2,width=32,heads=2,seq=32 --data text.txt --steps 1 \
    --devices cuda-host:8 --run refused
fails 2 "layer encoder.0.encode.0.conv, op conv2d, device cuda-host:0: cuda-host: conv2d: expects direct convolutions, got winograd (put that layer on a cpu device)" \
    plan unet:B=2,C=16,depth=1,image=32 --devices cuda-host --convolution winograd
finish
