#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_machines.sh SOURCE_DIR BUILD_DIR -- tests the program on machines that lack something;
# cuda-host simulates these machines. If cuBLASLt is missing, the program prints one warning.
# CGP_CUBLASLT names the library or disables it. If a GPU or a driver is too old, the message names
# it.
# shellcheck source=tests/cli/support.sh
. "$(dirname "$0")/../cli/support.sh"
export CGP_PLUGIN_PATH=$2/tests/plugins

train() { # NAME OPTIONS...
    run train gpt2:layers=1,width=16,heads=2,seq=16 --data text.txt --steps 1 --batch 4 --chunks 2 --dropout 0 \
        --run "$1" --json "$1.json" "${@:2}"
}
weights() { jq -er .weights_sha256 "$1.json" || echo "none of $1"; }
warnings() { grep -c "warning: linear layers in bf16 run without cuBLASLt: $1" "$err"; }

# --- cuBLASLt ---

bf16=(--precision bf16 --devices cuda-host:0,cuda-host:2 --stages 2)
train with "${bf16[@]}"
check "with cuBLASLt there is no warning" test "$code-$(warnings '')" = 0-0
CGP_CUDA_HOST_UNLISTED=1 train without "${bf16[@]}"
check "without cuBLASLt there is one warning for two devices, with the file and a fix" \
    test "$code-$(warnings "libcublasLt.so.13: .*No such file.* (add its directory, .*CGP_CUBLASLT=PATH")" = 0-1
check "own kernels multiply" test "$(weights without)" != "$(weights with)"
CGP_CUBLASLT=off train off "${bf16[@]}"
check "off: own kernels without a warning" test "$code-$(warnings '')-$(weights off)" = "0-0-$(weights without)"
mkdir lib && touch lib/libcublasLt.so.13 lib/mine.so
CGP_CUDA_HOST_UNLISTED=1 CGP_CUBLASLT=$PWD/lib/mine.so train named "${bf16[@]}"
check "the named file is opened" test "$code-$(warnings '')-$(weights named)" = "0-0-$(weights with)"
CGP_CUDA_HOST_UNLISTED=1 CGP_CUBLASLT_DIRS=/nowhere:$PWD/lib train listed "${bf16[@]}"
check "the library is found in a directory of CGP_CUBLASLT_DIRS" test "$code-$(warnings '')-$(weights listed)" = "0-0-$(weights with)"
CGP_CUDA_HOST_UNLISTED=1 CGP_CUBLASLT_DIRS=lib train relative "${bf16[@]}"
check "directories are absolute" test "$(weights relative)" = "$(weights without)"
CGP_CUBLASLT=/nowhere/lt.so fails 1 "cuda-host: CGP_CUBLASLT=/nowhere/lt.so: /nowhere/lt.so: cannot open shared object file: No such file or directory (expected the path of libcublasLt.so.13, or off)" \
    train gpt2:layers=1,width=16,heads=2,seq=16 --data text.txt --steps 1 --run refused "${bf16[@]}" --quiet
CGP_CUDA_HOST_UNLISTED=1 train tf32 --precision tf32 --devices cuda-host
check "in tf32 the same warning names tf32" test "$code-$(grep -c "warning: linear layers in tf32 run without cuBLASLt, much slower: libcublasLt" "$err")" = 0-1
CGP_CUBLASLT=/nowhere/lt.so train f32 --devices cuda-host
check "in f32 the library is not opened" test "$code" = 0

# --- GPUs and drivers ---

gpt2=(train gpt2:layers=1,width=16,heads=2,seq=16 --data text.txt --steps 1 --run refused --quiet)
unavailable() { # VARIABLE=VALUE TEXT: `cgpipe devices` and a training print TEXT
    (export "$1"; run devices; grep -qF "unavailable: cuda-host: $2 (from" "$out"; echo $?) >verdict
    check "devices, $1: $2" test "$(cat verdict)" = 0
    (export "$1"; fails 1 "cuda-host: $2" "${gpt2[@]}" --devices cuda-host) >verdict
    check "train, $1" grep -q '^ok' verdict
}
unavailable CGP_CUDA_HOST_DRIVER=0 "no GPU: no NVIDIA driver (expected one for CUDA 13, version 580 or later; in a container, libcuda.so.1)"
unavailable CGP_CUDA_HOST_DRIVER=12040 "no GPU: expected a driver for CUDA 13, version 580 or later, got one for CUDA 12.4 (update it, or build with a toolkit of CUDA 12)"
unavailable CGP_CUDA_HOST_DEVICES=0 "no GPU: no CUDA-capable device is detected"
unavailable CGP_CUDA_HOST_CAPABILITIES=75 "device 0: expected compute capability 8.0 or later, got 7.5 (a later GPU, or cpu)"
export CGP_CUDA_HOST_CAPABILITIES=75,90
run devices
check "the ordinals that can be used are listed" test "$(grep -c 'cuda-host:0 .*unavailable: .*got 7.5' "$out") $(grep -c '^cuda-host:1 .*asynchronous' "$out")" = "1 1"
fails 1 "cuda-host: device 0: expected compute capability 8.0 or later, got 7.5 (a later GPU, or cpu)" "${gpt2[@]}" --devices cuda-host:0
train later --devices cuda-host:1
check "a later GPU trains" test "$code" = 0

# --- devices of this machine ---

short=(train gpt2:layers=2,width=16,heads=2,seq=16 --data text.txt --steps 1 --batch 4 --chunks 2)
CGP_CUDA_HOST_DEVICES=3 run "${short[@]}" --run auto --devices auto
check "auto: the GPUs that can be used, with a line" grep -qx 'devices      auto: cuda-host:1,cuda-host:2' "$out"
check "they are kept as if given" test "$(jq -c .options.devices auto/run.json)" = '["cuda-host:1","cuda-host:2"]'
run train --run auto --resume --steps 2
check "resumed on the same devices" test "$code-$(jq -c '.devices' auto/run.json)" = '0-["cuda-host:0","cuda-host:1"]'
run "${short[@]}" --run auto-1 --devices auto --stages 1
check "auto: as many as stages" test "$code-$(grep -c 'auto: cuda-host:1$' "$out")" = 0-1
CGP_CUDA_HOST_DEVICES=1 run "${short[@]}" --run auto-cpu --devices auto
check "auto: without a GPU, the cpu" test "$code-$(grep -c 'auto: cpu$' "$out")" = 0-1
# The program initializes MPI to get its rank. The address sanitizer must ignore leaks inside MPI.
ASAN_OPTIONS=${ASAN_OPTIONS:-}:fast_unwind_on_malloc=0 LSAN_OPTIONS=suppressions=$source_dir/tests/mpi/lsan.supp:print_suppressions=0 \
    OMPI_COMM_WORLD_SIZE=2 fails 2 "--devices auto: expected one process, got 2 (name the devices, as in cuda:local*2)" "${short[@]}" --run refused --devices auto
touch gpu
CGP_GPU_FILE=$PWD/gpu run "${short[@]}" --run unused
check "a GPU that is not used is a line" test "$(grep -c '^devices      cpu, though a GPU is here: --devices cuda:0$' "$out")" = 1
CGP_GPU_FILE=$PWD/gpu run "${short[@]}" --run used --devices cpu
check "given devices are no line" test "$code-$(grep -c 'GPU is here' "$out")" = 0-0
CGP_GPU_FILE=/nowhere run "${short[@]}" --run none
check "without a GPU there is no line" test "$code-$(grep -c 'GPU is here' "$out")" = 0-0

finish
