#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_train_replicas.sh SOURCE_DIR BUILD_DIR -- cgpipe train --replicas in one process. The replicas are
# threads, and give the weights, losses, digests and checkpoints of one pipeline with as many
# gradient groups.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

sha() { sed -n 's/^weights_sha256 //p' "$out"; }
same() { # NAME RUN EXPECTED_RUN
    check "$1: exit code 0" exits 0
    check "$1: nothing on standard error" test ! -s "$err"
    for file in weights.safetensors optimizer.safetensors; do
        check "$1: $file of one pipeline" cmp "$2/latest/$file" "$3/latest/$file"
    done
}

text="gpt2:layers=4,width=32,heads=2,vocab=256,seq=16 --data text.txt --batch 16 --chunks 8 --gradient-groups 8
    --optimizer adamw --dropout 0.1 --clip 1 --steps 4 --evaluate-every 2 --digest-every 2"
# shellcheck disable=SC2086 # split into words
{
    run train $text --run one
    weights=$(sha)
    run train $text --run two --replicas 2
    same "2 replicas" two one
    check "2 replicas: are printed" has ", at most 4 on each of 2 replicas" "$out"
    run compare one two
    check "2 replicas: the digests of one pipeline" exits 0
    run train $text --run sharded --replicas 4 --stages 2 --schedule zb-h1 --shard-optimizer
    same "4 replicas of 2 stages, sharded" sharded one
    run train $text --run three --replicas 2 --batch 6 --chunks 3 --trace steps.svg
    check "--trace with unequal replicas" test "$code $(cat "$err")" = \
        "2 cgpipe: --trace: expected a multiple of 2 micro-batches for as many replicas, got 3 (--chunks, or leave out --trace)"
    run train $text --run traced --replicas 2 --stages 2 --trace steps.svg
    same "--trace" traced one
    check "--trace: the second device" grep -q "cpu:1\|device 1" steps.svg
    run sample two --length 12 --prompt abc
    check "sample: exit code 0" exits 0
}
run train --resume --run two --replicas 4 --steps 6
two=$(sha)
run train --resume --run one --steps 6
check "a run goes on with another number of replicas" test "$two" = "$(sha)"
check "and trains on" test "$two" != "$weights"

# shellcheck disable=SC2086 # split into words
for replicas in 1 2; do
    run train resnet:depth=8,image=16,classes=10 --data shapes --batch 8 --chunks 4 --gradient-groups 4 --steps 2 --run images-$replicas --replicas $replicas
    cp "$out" images-$replicas.txt
done
same "images" images-2 images-1
check "images: validation as with one pipeline" test "$(grep '^validation' images-1.txt)" = "$(grep '^validation' images-2.txt)"
run bench gpt2:layers=2,width=32,heads=2,seq=16,vocab=64 --batch 8 --chunks 4 --steps 3 --replicas 2 --json bench.json
check "bench: exit code 0" exits 0

CGP_FAULT=fail:rank=1,at=0B1 run train gpt2:layers=2,width=32,heads=2,seq=16 --data text.txt --batch 8 --chunks 4 --replicas 2 --run fails --steps 3
check "a failure names the replica" grep -q '^cgpipe: rank 1: stage 0, micro-batch 1, 0B1: ' "$err"
check "a failure: exit code 1" exits 1
fails 2 "--replicas 2: expected one process, or a multiple of 2 processes over MPI, got 1 with --transport mpi (mpirun -n 2 cgpipe train ...)" \
    train gpt2 --data random --replicas 2 --transport mpi --run none
run train gpt2:layers=2,width=32,heads=2,seq=16 --data text.txt --batch 8 --chunks 4 --replicas 2 --memory-limit 100K --run none
check "a limit: a command for one process" grep -q '; this fits: cgpipe train .* --replicas 2 ' "$err"
fails 2 "replicas: expected a power of two, got 3 (2 and 4 are the nearest)" train gpt2 --data random --replicas 3 --run none
fails 2 "--replicas 2: expected 1 (cgpipe check takes no replicas; ..." check gpt2 --replicas 2
if [ -e "${program%/*}/plugins/libcgpipe-cuda-host.so" ]; then
    fails 1 "device cuda-host:0: 2 replicas in one process need devices that use the host's memory (cpu), ..." \
        train gpt2:layers=2,width=32,heads=2,seq=16 --data text.txt --devices cuda-host --replicas 2 --run none
fi
finish
