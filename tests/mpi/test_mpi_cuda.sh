#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_cuda.sh SOURCE_DIR BUILD_DIR -- run cuda-host devices in several MPI processes, alone and
# together with cpu devices. Messages pass through planned host memory, or the receiver copies from
# the sender's device memory. The weights equal the weights of one process, even with slow streams.
# If a process is killed, the other processes end.
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
# shellcheck source=tests/mpi/faults.sh
. "$(dirname "$0")/faults.sh"
needs_mpi "$build_dir"
CGP_PLUGIN_PATH=$(cd "$build_dir" && pwd)/tests/plugins
export CGP_PLUGIN_PATH TERM=dumb
[ -e "$CGP_PLUGIN_PATH/libcgpipe-cuda-host.so" ] || { echo "skip: no cuda-host (a C++ compiler)"; exit 77; }

export CGP_CUDA_HOST_IPC=on
make_text
gpt2="gpt2:layers=2,width=32,heads=2,vocab=256,seq=16,tied=1 --data $work/text.txt --batch 8 --chunks 4 --steps 3 --seed 3 --clip 0.5"
weights() { jq -er .weights_sha256 "$1" || echo "none of $1"; }

compare() { # NAME RANKS OPTION...
    local name=$1 n=$2
    shift 2
    "$cgpipe" train "$@" --run "$work/one" --overwrite --json "$work/one.json" --quiet >"$work/out" 2>"$work/err"
    check "$name: one process ends well" [ $? = 0 ]
    ranks "$name" "$n" "$@"
}
ranks() { # NAME RANKS OPTION...
    local name=$1 n=$2
    shift 2
    CGP_CUDA_HOST_DELAY=${delay:-100000} run_ranks "$n" "$cgpipe" train "$@" --run "$work/ranks" --overwrite --json "$work/ranks.json" --verbose >"$work/out" 2>"$work/err"
    check "$name: ranks end well" [ $? = 0 ]
    check "$name: the weights of one process" [ "$(weights "$work/one.json")" = "$(weights "$work/ranks.json")" ]
    check "$name: the losses of one process" [ "$(jq -c '[.loss_first, .loss_last]' "$work/one.json")" = "$(jq -c '[.loss_first, .loss_last]' "$work/ranks.json")" ]
    check "$name: allocated as planned" test "$(jq '.allocated_bytes_total == .planned_bytes_total' "$work/ranks.json")" = true
}
# shellcheck disable=SC2086 # split into words
{
    CGP_PIECE_BYTES=960 CGP_CUDA_HOST_IPC=broken compare "two devices" 2 $gpt2 --stages 2 --devices 'cuda-host*2'
    check "two devices: a pattern that does not arrive sends messages through host memory" [ "$(grep -c '^edge [01] .*, over host memory$' "$work/out")" = 2 ]
    same=$(weights "$work/ranks.json")
    "$cgpipe" train $gpt2 --stages 1 --devices cuda-host --run "$work/alone" --json "$work/alone.json" --quiet >"$work/out" 2>"$work/err"
    check "two devices: the weights of one stage" [ "$(weights "$work/alone.json")" = "$same" ]
    check "both paths are planned" test "$(jq '[.devices[] | .receive_bytes == 0 and .transfer_bytes > 0 and .host_bytes > 0] | all' "$work/ranks.json")" = true
    check "what the drivers took comes from both ranks" test "$(jq -c '[.devices[].driver_bytes]' "$work/ranks.json")" = '[327155712,327155712]'
    delay=1000000 ranks "shared memory" 2 $gpt2 --stages 2 --devices 'cuda-host*2'
    check "shared memory: both edges use it" [ "$(grep -c '^edge [01] .*, over device memory$' "$work/out")" = 2 ]
    CGP_CUDA_HOST_IPC=unordered CGP_CUDA_HOST_DELAY=1000000 run_ranks 2 "$cgpipe" train $gpt2 --stages 2 --devices 'cuda-host*2' --run "$work/early" --json "$work/early.json" --quiet >"$work/out" 2>"$work/err"
    check "a copy before its event changes the weights" [ "$(weights "$work/early.json" 2>"$work/err")" != "$same" ]
    CGP_PIECE_BYTES=960 compare "cuda-host between cpus, on three ranks" 3 $gpt2 --stages 3 --devices cpu,cuda-host,cpu --schedule gpipe
    CGP_PIECE_BYTES=960 compare "two devices a rank" 2 $gpt2 --stages 4 --devices cpu,cuda-host,cuda-host:1,cuda-host:2
    check "two devices a rank: the edges between the ranks use shared memory" [ "$(grep '^edge' "$work/out" | cut -d, -f2 | tr '\n' ';')" = " over device memory; over device memory;" ]
    CGP_IPC=off compare "images" 2 resnet:depth=8,width=4,classes=10,image=32 --data shapes:size=32,validation=8 --steps 2 --batch 4 --chunks 2 --stages 2 --devices 'cuda-host*2'
    check "images: CGP_IPC=off sends messages through host memory" [ "$(grep -c '^edge [01] .*, over host memory$' "$work/out")" = 2 ]
}
run_ranks 2 "$cgpipe" check gpt2:layers=2,width=32,heads=2,vocab=64,seq=16 --stages 2 --devices 'cuda-host*2' --batch 4 --chunks 4 --precision bf16 >"$work/out" 2>"$work/err"
check "cgpipe check on two ranks" [ $? = 0 ]
# With CGP_CUDA_HOST_UUIDS=1, both ranks see the same eight GPUs.
for name in cuda-host cuda-host:local; do
    # shellcheck disable=SC2086 # split into words
    CGP_CUDA_HOST_UUIDS=1 run_ranks 2 "$cgpipe" train $gpt2 --stages 2 --devices "$name*2" --run "$work/$name" --json "$work/$name.json" >"$work/out" 2>"$work/err"
    check "$name on two ranks: the weights of one process" [ "$(weights "$work/$name.json")" = "$same" ]
    shared=$(grep -c 'rank 0 and rank 1, on host .*, share a GPU (cuda:local gives' "$work/err")
    check "$name: ranks that share a GPU are a warning" [ "$shared" = "$([ $name = cuda-host ] && echo 1 || echo 0)" ]
done
check "equal libraries are no warning" [ "$(grep -c 'may differ' "$work/err")" = 0 ]
# shellcheck disable=SC2086 # split into words
if [ "$mpi" = "Open MPI" ]; then # rank 1 simulates another version of cuBLASLt
    train="train $gpt2 --precision bf16 --stages 2 --run $work/mixed"
    run_ranks 1 "$cgpipe" $train --devices 'cuda-host*2' : -n 1 -x CGP_CUDA_HOST_ALGORITHMS=3 \
        "$cgpipe" $train --devices 'cuda-host*2' >"$work/out" 2>"$work/err"
    check "another library is a warning, once" [ "$(grep -c 'rank 0 (cuBLASLt 130002, .*) and rank 1 (cuBLASLt 130003, .*) may differ' "$work/err")" = 1 ]
fi
# shellcheck disable=SC2086 # split into words
if [ "$mpi" = "Open MPI" ]; then # rank 1's copies are late when rank 0 reuses its buffers
    train="train $gpt2 --chunks 8 --steps 1 --stages 2 --schedule gpipe --devices cuda-host*2 --run $work/late --overwrite --quiet"
    "$cgpipe" $train --json "$work/one.json" >"$work/out" 2>"$work/err"
    run_ranks 1 "$cgpipe" $train --json "$work/late.json" : -n 1 -x CGP_CUDA_HOST_DELAY=3000000 "$cgpipe" $train >"$work/out" 2>"$work/err"
    check "late copies: the weights of one process" [ "$(weights "$work/late.json")" = "$(weights "$work/one.json")" ]
fi
if [ "$mpi" = "Open MPI" ]; then # a device waits for an event that the killed rank never records
    # shellcheck disable=SC2086 # split into words
    launcher=--enable-recovery CGP_CUDA_HOST_DELAY=2000000 run_fault 2 kill:rank=0,at=0F2@1 "$cgpipe" train $gpt2 --steps 6 --stages 2 --devices 'cuda-host*2' --run "$work/killed" --overwrite --timeout 1 >"$work/out" 2>"$work/err"
    check "killed: the other has code 3" [ "$(code_of 1)" = 3 ]
    check "killed: it is named, once" [ "$(grep -c '^cgpipe: rank 0: silent for [0-9.]* s (process .* was killed' "$work/err")" = 1 ]
    check "killed: no process is left" [ -z "$(pgrep -f "$work/killed")" ]
fi
exit $failed
