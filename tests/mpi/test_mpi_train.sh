#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_train.sh SOURCE_DIR BUILD_DIR -- `cgpipe train` in several MPI processes gives the same
# weights, losses and samples as one process. Another number of ranks can resume the run. All ranks
# share one directory, and only rank 0 prints. If one rank fails or gets a signal, all ranks end.
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
export TERM=dumb

result_of() { grep -A9 -E '^(weights_sha256|validation)' "$1" | grep -v '^report  '; } # the lines include the sample
losses_of() { sed -n 's/.*\("step":[0-9]*,"loss":[^,]*,\).*/\1/p' "$1/metrics.jsonl"; }

make_text
gpt2="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32,tied=1 --data $work/text.txt --batch 8 --chunks 4 --seed 3"

# --- same results as in one process ---

compare() { # NAME RANKS OPTION...
    local name=$1 n=$2
    shift 2
    "$cgpipe" train "$@" --run "$work/one" --overwrite >"$work/out-one" 2>&1
    run_ranks "$n" "$cgpipe" train "$@" --run "$work/ranks" --overwrite >"$work/out-ranks" 2>&1
    check "$name: ends well" [ $? = 0 ]
    check "$name: has a hash" grep -q '^weights_sha256 [0-9a-f]\{64\}$' "$work/out-ranks"
    check "$name: the results of one process" [ "$(result_of "$work/out-one" | grep -v '^step\|^weights  ')" = "$(result_of "$work/out-ranks" | grep -v '^step\|^weights  ')" ]
    check "$name: the losses of one process" [ "$(losses_of "$work/one")" = "$(losses_of "$work/ranks")" ]
    [ $failed = 0 ] || tail -20 "$work/out-ranks"
}
# shellcheck disable=SC2086 # split into words
{
    compare "1f1b, clipped, sampled" 2 $gpt2 --stages 4 --steps 6 --clip 0.5 --sample 20 --evaluate-every 3
    compare "zb-v, recomputed" 3 $gpt2 --stages 3 --schedule zb-v --recompute always+selective --steps 4
    compare "interleaved, bf16" 2 $gpt2 --stages 2 --schedule interleaved --virtual 2 --precision bf16 --steps 4 --sample 20
    compare "resnet20" 4 resnet20 --data shapes:size=32 --stages 4 --batch 8 --chunks 4 --steps 3 --deferred-batch-norm
}

# --- resumed by other numbers of ranks ---

# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" train $gpt2 --stages 4 --steps 12 --run "$work/straight" >"$work/out-straight" 2>&1
    run_ranks 4 "$cgpipe" train $gpt2 --stages 4 --steps 4 --run "$work/resumed" --save-every 2 >"$work/log" 2>&1
    run_ranks 2 "$cgpipe" train --resume --run "$work/resumed" --steps 8 >>"$work/log" 2>&1
    "$cgpipe" train --resume --run "$work/resumed" --steps 10 --stages 1 >>"$work/log" 2>&1
    run_ranks 3 "$cgpipe" train --resume --run "$work/resumed" --steps 12 --stages 3 >"$work/out-resumed" 2>&1
}
check "resumed by 2, 1 and 3 ranks: the weights of a run that was not stopped" \
    [ "$(grep ^weights_sha "$work/out-straight")" = "$(grep ^weights_sha "$work/out-resumed")" ]
check "its last checkpoint is of 3 ranks" [ "$(ls "$work/resumed/latest" | tr '\n' ' ')" = "checkpoint.json checkpoint.sha256 \
model-00001-of-00003.safetensors model-00002-of-00003.safetensors model-00003-of-00003.safetensors model.safetensors.index.json \
optimizer-00001-of-00003.safetensors optimizer-00002-of-00003.safetensors optimizer-00003-of-00003.safetensors " ]
check "the place of the weights is printed" grep -q "^weights  *$work/resumed/latest$" "$work/out-resumed"
"$cgpipe" convert "$work/straight" "$work/from-one" >/dev/null && "$cgpipe" convert "$work/resumed" "$work/from-shards" >/dev/null
check "both convert to the same weights" cmp "$work/from-one/model.safetensors" "$work/from-shards/model.safetensors"
"$cgpipe" sample "$work/straight" --length 20 --seed 1 >"$work/sample-one"
"$cgpipe" sample "$work/resumed" --length 20 --seed 1 >"$work/sample-shards"
"$cgpipe" sample "$work/straight" --weights "$work/resumed/latest" --length 20 --seed 1 >"$work/sample-weights"
check "both give the same sample" cmp "$work/sample-one" "$work/sample-shards"
check "so do the shards as published weights" cmp "$work/sample-one" "$work/sample-weights"
check "one record" [ "$(jq '.starts | length' "$work/resumed/run.json")" = 4 ]
file=$(sha256sum <"$build_dir/plugins/libcgpipe-mpi.so")
check "the record has the plug-in" [ "$(jq -c '[.plugins, (.starts[] | .plugins)] | map(. and .[0] == {name: "mpi", version: .[0].version, sha256: "'"${file%% *}"'"})' \
    "$work/resumed/run.json")" = "[true,true,true,false,true]" ]
sed -i "s/${file%% *}/$(printf '0%.0s' {1..64})/" "$work/resumed/run.json"
run_ranks 3 "$cgpipe" train --resume --run "$work/resumed" >"$work/log" 2>&1
check "another file of a plug-in: a warning" grep -qx "warning      plug-in mpi: another file, SHA-256 00000000 before, $(cut -c1-8 <<<"$file") now" "$work/log"

# --- rank 0 writes the output and the files ---

# shellcheck disable=SC2086 # split into words
run_ranks 2 "$cgpipe" train $gpt2 --stages 2 --steps 3 --run "$work/files" --json "$work/report.json" --trace "$work/trace.svg" >"$work/out" 2>"$work/err"
check "each line is printed once" [ "$(grep -c '^weights_sha256' "$work/out")$(grep -c '^run  ' "$work/out")" = 11 ]
check "nothing on standard error" [ ! -s "$work/err" ]
check "the report has both ranks" [ "$(jq -c '[.devices[].rank]' "$work/report.json")" = "[0,1]" ]
check "the report has the bytes of both" jq -e '.allocated_bytes_total == .planned_bytes_total' "$work/report.json"
check "the trace has both devices" [ "$(grep -c 'device' "$work/trace.svg")" -ge 2 ]

# --- digests are those of one process ---

# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" train $gpt2 --steps 3 --digest-every 1 --run "$work/digests-1" >"$work/log" 2>&1
    run_ranks 3 "$cgpipe" train $gpt2 --stages 3 --steps 3 --digest-every 1 --run "$work/digests-3" >"$work/log" 2>&1
}
check "digests of three ranks: equal" "$cgpipe" compare "$work/digests-1" "$work/digests-3"

# --- failures ---

refused() { # NAME RANKS MESSAGE OPTION...
    local name=$1 n=$2 message=$3
    shift 3
    run_ranks "$n" "$cgpipe" train "$@" >"$work/out" 2>"$work/err"
    check "$name: fails" [ $? != 0 ]
    check "$name: one message" [ "$(grep -c '^cgpipe: ' "$work/err")" = 1 ]
    check "$name: the message has the reason" grep -q -- "$message" "$work/err"
    [ $failed = 0 ] || head -20 "$work/err"
}
# shellcheck disable=SC2086 # split into words
{
    refused "too few devices" 3 "ranks: expected 1 to 2" $gpt2 --stages 2 --run "$work/none"
    refused "an unknown option" 2 "did you mean --stages" --stges 2
    refused "a run that is there" 2 "has a run already" $gpt2 --stages 2 --run "$work/files"
    refused "a loss that is not finite" 2 "not finite" $gpt2 --stages 2 --run "$work/none" --optimizer sgd --lr 1e30 --clip 1 --steps 9 --save-every 0
}
# MPICH's mpiexec kills all processes when one of them ends with an error. So rank 0 may have no
# time to delete the files that it created.
[ "$mpi" = MPICH ] || check "nothing is left of them" [ ! -e "$work/none" ]

# --- a bad token that ranks 0 and 2 read: all ranks end alike and save the steps before it ---

iconv -f LATIN1 -t UTF-16LE "$work/text.txt" >"$work/good.bin"
bad_token() { # NAME STEPS TRAINING VALIDATION OPTION...
    local name=$1 steps=$2 training=$3 validation=$4
    shift 4
    # shellcheck disable=SC2086 # split into words
    run_ranks 3 "$cgpipe" train ${gpt2/text.txt/$training} --validation "$work/$validation" --stages 3 --steps 6 --save-every 0 --run "$work/token" --overwrite "$@" \
        >"$work/out" 2>"$work/err"
    check "$name: exit code 4" [ $? = 4 ]
    check "$name: one message" [ "$(grep -c '^cgpipe: ' "$work/err")" = 1 ]
    check "$name: the message has the saved step" grep -q "^cgpipe: .*\.bin: at byte 500: expected a token below 256, got 65535 .*; step $steps is saved\$" "$work/err"
    check "$name: is saved" [ "$(readlink "$work/token/latest")" = "step-0000000$steps" ]
    check "$name: a line each" [ "$(losses_of "$work/token" | wc -l)" = "$steps" ]
}
cp "$work/good.bin" "$work/bad.bin"
printf '\377\377' | dd of="$work/bad.bin" bs=1 seek=500 conv=notrunc status=none
bad_token "a bad token" 2 bad.bin good.bin
bad_token "a bad token of the validation" 4 good.bin bad.bin --evaluate-every 4
run_ranks 2 "$cgpipe" train --resume --run "$work/token" --validation "$work/good.bin" --new-data --stages 2 >"$work/out" 2>&1
check "a bad token of the validation, mended: the run goes on" [ $? = 0 ]

# --- one rank has its own storage: another directory under the same name ---

mkdir "$work/here" "$work/there"
# shellcheck disable=SC2016 # variables of the inner shell
apart='cd "$0/$([ "${OMPI_COMM_WORLD_RANK-$PMI_RANK}" = 1 ] && echo there || echo here)" && exec "$@"'
# shellcheck disable=SC2086 # split into words
run_ranks 2 bash -c "$apart" "$work" "$cgpipe" train $gpt2 --stages 2 --steps 2 --run local >"$work/out" 2>"$work/err"
check "storage of one host: fails" [ $? != 0 ]
check "storage of one host: one message" [ "$(grep -c '^cgpipe: ' "$work/err")" = 1 ]
check "storage of one host: rank, path, host" grep -q "^cgpipe: rank 1: local: expected on host $(hostname) the directory that rank 0 writes to" "$work/err"
check "storage of one host: nothing is left" [ -z "$(ls "$work/here" "$work/there" | grep local)" ]

# --- a rank is killed during a save ---

# shellcheck disable=SC2086 # split into words
run_ranks 2 "$cgpipe" train $gpt2 --stages 2 --steps 1000000 --save-every 1 --run "$work/killed" >"$work/out" 2>&1 &
runner=$!
until [ -e "$work/killed/latest" ] && compgen -G "$work/killed/.cgpipe-step-*" >/dev/null; do
    kill -0 $runner || break
done
pkill -KILL -n -f "^$cgpipe train .*--run $work/killed"
wait $runner
check "a killed rank ends the run" [ $? != 0 ]
"$cgpipe" sample "$work/killed" --length 1 >"$work/out" 2>&1
check "the checkpoint before it is whole" [ $? = 0 ]
step=$(readlink "$work/killed/latest")
"$cgpipe" train --resume --run "$work/killed" --stages 1 --steps $((10#${step#step-} + 1)) >"$work/out" 2>&1
check "it is resumed" grep -q "^resumed" "$work/out"
check "what was cut short is gone" [ -z "$(ls -A "$work/killed" | grep '^\.cgpipe')" ]

# --- one rank gets a signal ---

# shellcheck disable=SC2086 # split into words
run_ranks 2 "$cgpipe" train $gpt2 --stages 2 --steps 1000000 --interval 1 --run "$work/stopped" >"$work/out" 2>"$work/err" &
runner=$!
for _ in $(seq 1200); do
    grep -q '^step .*3/' "$work/out" && break
    sleep 0.1
done
pkill -TERM -n -f "^$cgpipe train .*--run $work/stopped"
wait $runner
check "SIGTERM to one rank: exit code 130" [ $? = 130 ]
check "SIGTERM to one rank: a checkpoint" grep -q 'SIGTERM: stopped after step .* which is saved' "$work/err"
check "SIGTERM to one rank: no process is left" [ -z "$(pgrep -f "$work/stopped")" ]
run_ranks 2 "$cgpipe" train --resume --run "$work/stopped" --steps 3 >"$work/out" 2>&1
check "it can be resumed" grep -q 'the run has all its\|^resumed' "$work/out"
exit $failed
