#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compare the weights after some short runs of two builds, for each instruction set that this
# processor has:
#
#     tools/same_weights.sh BUILD OTHER        exit code 1 if weights of a run differ
set -u
builds=("$(cd "$1" && pwd)" "$(cd "$2" && pwd)")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

weights() { # weights BUILD ISA ARGUMENT...
    CGP_CPU_ISA=$2 "$1/cgpipe" train "${@:3}" --batch 2 --chunks 2 --steps 2 --seed 7 --run run --overwrite 2>&1 |
        sed -n 's/^weights_sha256 *//p'
}

compare() { # compare ARGUMENT...
    for isa in $isas; do
        for precision in f32 bf16; do
            one=$(weights "${builds[0]}" "$isa" "$@" --precision $precision)
            other=$(weights "${builds[1]}" "$isa" "$@" --precision $precision)
            if [ -n "$one" ] && [ "$one" = "$other" ]; then
                verdict="same"
            else
                verdict="DIFFERENT (${one:-no weights}, ${other:-no weights})"
                failed=1
            fi
            echo "$verdict: $isa $precision $*"
        done
    done
}

isas=""
for isa in v3 v4 v4-bf16 amx; do
    if CGP_CPU_ISA=$isa "${builds[0]}/cgpipe" check gpt2:layers=1,width=8,heads=2,vocab=11,seq=4 --batch 1 --chunks 1 --stages 1 \
        >/dev/null 2>&1; then
        isas+=" $isa"
    else
        echo "skip: $isa (not on this processor)"
    fi
done
[ -n "$isas" ] || exit 1
compare gpt2:layers=2,width=48,heads=3,vocab=67,seq=24 --data random --dropout 0.1 --stages 2 --recompute except_last
compare gpt2:layers=3,width=80,heads=5,vocab=129,seq=16 --data random --dropout 0.1 --threads 2 --optimizer adam
compare resnet20 --data shapes --stages 2 --schedule zb-h1
compare unet:B=1,C=2,depth=2,image=32 --data shapes:masks=1 --stages 2 --optimizer rmsprop
compare amoebanetd:L=3,D=8,image=32,classes=10 --data shapes --stages 2 --optimizer adamw
exit $failed
