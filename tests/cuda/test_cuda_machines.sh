#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# test_cuda_machines.sh SOURCE_DIR BUILD_DIR -- machines on which something is missing, on cuda-host:
# without cuBLASLt there is one warning, and CGP_CUBLASLT names the library or turns it off.
# shellcheck source=tests/cli/support.sh
. "$(dirname "$0")/../cli/support.sh"
export CGP_PLUGIN_PATH=$2/tests/plugins

train() { # NAME OPTIONS...
    run train gpt2:layers=1,width=16,heads=2,seq=16 --data text.txt --steps 1 --batch 4 --chunks 2 --dropout 0 \
        --run "$1" --json "$1.json" "${@:2}"
}
weights() { jq -er .weights_sha256 "$1.json" || echo "none of $1"; }
warnings() { grep -c "warning: GEMMs in bf16 run on CUDA cores, much slower: $1" "$err"; }

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
CGP_CUBLASLT=/nowhere/lt.so train f32 --devices cuda-host
check "in f32 the library is not opened" test "$code" = 0

finish
