#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `make demo` learns and samples as documented, and gives the same weights in one stage and in two
# stages. In bf16, the loss of each of 100 steps is within 1 % of the loss in f32.
#
#     bash test_demo.sh SOURCE_DIR BUILD_DIR [STEPS]
#
# STEPS is 200 by default; .ci/nightly runs 1,200 steps, as the demo itself does.
set -u
source_dir=$1
build_dir=$2
steps=${3:-200}
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
failed=0

check() { # NAME CONDITION...
    local name=$1
    shift
    if "$@"; then echo "ok: $name"; else echo "not ok: $name"; failed=1; fi
}

# Run the command of the Makefile with this build's program and the test's directories.
demo() { # NAME STAGES STEPS [OPTION...]
    make -s -n -C "$source_dir" demo BUILD="$build_dir" STAGES="$2" DEMO_STEPS="$3" DEMO_RUN="$temp/run-$1" |
        sed -n '/cgpipe train gpt2/,/--data/p' | sed "\$ s/\$/ ${*:4}/" >"$temp/command"
    check "$1: the Makefile has the command" grep -q -- "--stages $2 " "$temp/command"
    (cd "$source_dir" && DEMO_RUN="$temp/run-$1" bash "$temp/command") >"$temp/out-$1" 2>&1
    check "$1: training and sampling end well" [ $? = 0 ]
}

demo 2 2 "$steps" --verbose
demo short-1 1 40
demo short-2 2 40
loss=$(sed -n 's/^validation *loss \([0-9.]*\).*/\1/p' "$temp/out-2")
echo "validation loss $loss"
limit=2.8
[ "$steps" -lt 1200 ] || limit=2.6
check "the validation loss is below $limit nats a byte" awk -v loss="$loss" -v limit=$limit 'BEGIN {exit !(loss > 0 && loss < limit)}'
first=$(sed -n 's/^step *1\/.* loss \([0-9.]*\) .*/\1/p' "$temp/out-2")
check "the loss begins near ln 256 ($first)" awk -v loss="$first" 'BEGIN {exit !(loss > 5.4 && loss < 5.7)}'
for word in "memory per device" "schedule 1f1b" "F0 F1" "tok/s" "bubble" "planned" "resident" "busy" "sample of 200"; do
    check "it shows: $word" grep -q "$word" "$temp/out-2"
done
check "one stage and two give the same weights" \
    [ "$(grep weights_sha256 "$temp/out-short-1")" = "$(grep weights_sha256 "$temp/out-short-2")" ]

# Train in bf16 with the kernels for this processor, which may use AVX512_BF16 or AMX. Then train
# again with the kernels that run on every processor. The mean difference of the losses from f32 is
# 0.01 %. If numbers were truncated to bf16 instead of rounded, the difference would be 0.08 %.
# (Without --warmup, the losses of single steps differ by hundreds of times as much, even between
# two runs in f32; see bench/losses.py.)
losses_of() { sed -n 's/.*"loss": *\([0-9.e-]*\).*/\1/p' "$temp/run-$1/metrics.jsonl"; }
demo bf16 2 100 --precision bf16
runs=bf16
if grep -qE 'avx512_bf16|amx_bf16' /proc/cpuinfo; then # on other processors both runs are the same
    CGP_CPU_ISA=v3 demo bf16-v3 2 100 --precision bf16
    runs="bf16 bf16-v3"
fi
losses_of 2 | head -n 100 >"$temp/losses" # the learning rate does not depend on the number of steps
for run in $runs; do
    read -r steps worst mean < <(losses_of $run | paste "$temp/losses" - | awk '
        {off = 100 * ($2 > $1 ? $2 - $1 : $1 - $2) / $1; sum += off; if (off > worst) worst = off}
        END {print NR, worst, sum / NR}')
    echo "$run: losses of $steps steps are at most $worst % from f32's, $mean % in the mean"
    check "$run: each of 100 losses is within 1 % of f32's" \
        awk -v n="$steps" -v worst="$worst" 'BEGIN {exit !(n == 100 && worst > 0 && worst <= 1)}'
    check "$run: in the mean they are within 0.05 %" awk -v mean="$mean" 'BEGIN {exit !(mean > 0 && mean <= 0.05)}'
done
exit $failed
