#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_replicas.sh SOURCE_DIR BUILD_DIR -- cgpipe train --replicas in MPI processes gives the
# same weights, losses, digests and samples as one pipeline with as many gradient groups. A run can
# be resumed with another number of replicas. If an option cannot be used with replicas, the message
# names the option.
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
export TERM=dumb

result_of() { grep -A9 -E '^(weights_sha256|validation)' "$1" | grep -v '^step\|^weights  \|^report  '; } # includes the sample
losses_of() { sed -n 's/.*\("step":[0-9]*,"loss":[^,]*,\).*/\1/p' "$1/metrics.jsonl"; }
hash_of() { grep '^weights_sha256' "$1"; }
groups_of() { jq -c '[.options.replicas, .options.gradient_groups]' "$1/run.json"; }

make_text
gpt2="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32,tied=1 --dropout 0.1 --data $work/text.txt --batch 8 --seed 3"

# --- the results of one pipeline ---

compare() { # NAME RANKS REPLICAS GROUPS OPTION...
    local name=$1 n=$2 replicas=$3 groups=$4
    shift 4
    "$cgpipe" train "$@" --gradient-groups "$groups" --stages 1 --run "$work/one" --overwrite --json "$work/one.json" >"$work/out-one" 2>&1
    run_ranks "$n" "$cgpipe" train "$@" --replicas "$replicas" --run "$work/ranks" --overwrite --json "$work/ranks.json" >"$work/out" 2>"$work/err"
    check "$name: ends well" [ $? = 0 ]
    check "$name: nothing on standard error" [ ! -s "$work/err" ]
    check "$name: has a hash" grep -q '^weights_sha256 [0-9a-f]\{64\}$' "$work/out"
    check "$name: the results of one pipeline" [ "$(result_of "$work/out-one")" = "$(result_of "$work/out")" ]
    check "$name: the losses of one pipeline" [ "$(losses_of "$work/one")" = "$(losses_of "$work/ranks")" ]
    check "$name: the groups are found and kept" [ "$(groups_of "$work/ranks")" = "[$replicas,$groups]" ]
}
# shellcheck disable=SC2086 # split into words
{
    compare "2 x 1, clipped, sampled, digests" 2 2 8 $gpt2 --steps 4 --clip 0.5 --sample 20 --evaluate-every 2 --digest-every 1
    "$cgpipe" compare "$work/one" "$work/ranks" >"$work/out-compare" 2>&1
    check "the digests of one pipeline" [ $? = 0 ]
    compare "2 x 2, zb-v, recomputed, 3 micro-batches" 4 2 2 $gpt2 --chunks 3 --schedule zb-v --recompute always+selective --steps 3
    compare "4 x 1, bf16, 6 micro-batches" 4 4 4 $gpt2 --batch 6 --chunks 6 --precision bf16 --steps 3
    compare "2 x 2, sharded, digests" 4 2 4 $gpt2 --chunks 4 --shard-optimizer --optimizer adamw --steps 3 --digest-every 1
    "$cgpipe" compare "$work/one" "$work/ranks" >"$work/out-compare" 2>&1
    check "the digests of one pipeline, sharded" [ $? = 0 ]
    compare "4 x 1, fewer micro-batches than replicas, sharded and clipped" 4 4 4 $gpt2 --batch 3 --chunks 3 --steps 3 --shard-optimizer --clip 0.5
    check "a sharded optimizer is printed" grep -q ', 4 replicas, sharded optimizer, 4 gradient groups' "$work/out"
    compare "4 x 1, fewer micro-batches than replicas" 4 4 4 $gpt2 --batch 3 --chunks 3 --steps 3
}
check "replicas and their ranks are printed" grep -q 'ranks 0-3 on .*\|rank 3 on .*: replica 3, device 0' "$work/out"
check "replicas and groups are printed" grep -q ', 4 replicas, 4 gradient groups' "$work/out"

# --- batch norms ---

state_of() { jq -e .state_sha256 "$1"; }
same_states() { check "$1: the running statistics of one pipeline" [ "$(state_of "$work/one.json")" = "$(state_of "$work/ranks.json" || echo none)" ]; }
resnet="resnet20:image=16,width=2 --data shapes:size=16,validation=12 --seed 3 --steps 2"
# shellcheck disable=SC2086 # split into words
compare "batch norms, 2 x 2, 3 micro-batches" 4 2 2 $resnet --batch 6 --chunks 3
same_states "2 x 2"
# shellcheck disable=SC2086 # split into words
compare "batch norms of whole mini-batches, fewer micro-batches than replicas" 4 4 4 $resnet --batch 6 --chunks 3 --deferred-batch-norm
same_states "whole mini-batches"

# --- a schedule of the user ---

printf '0F0,0F1,0B0,0B1,\n,1F0,1B0,1F1,1B1\n' >"$work/mine.csv"
# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" train $gpt2 --batch 4 --chunks 4 --gradient-groups 4 --steps 3 --run "$work/plain" >"$work/out-one" 2>&1
    run_ranks 4 "$cgpipe" train $gpt2 --batch 4 --schedule "$work/mine.csv" --replicas 2 --steps 3 --run "$work/csv" --json "$work/report.json" >"$work/out" 2>"$work/err"
}
check "a schedule file is that of one replica" [ "$(hash_of "$work/out-one") $(groups_of "$work/csv")" = "$(hash_of "$work/out") [2,4]" ]
check "the report has the bytes of a replica" [ "$(jq '.allocated_bytes_total == .planned_bytes_total and .replicas == 2 and .microbatches == 4 and .ranks == 4' "$work/report.json")" = true ]

# --- devices with memory of their own, which could share it within a replica ---

if [ -e "$build_dir/tests/plugins/libcgpipe-cuda-host.so" ]; then
    export CGP_PLUGIN_PATH=$build_dir/tests/plugins CGP_CUDA_HOST_DELAY=20000 CGP_CUDA_HOST_IPC=on
    small="gpt2:layers=2,width=32,heads=2,vocab=256,seq=16 --data $work/text.txt --batch 8 --chunks 4 --steps 2 --devices cuda-host"
    # shellcheck disable=SC2086 # split into words
    {
        "$cgpipe" train $small --gradient-groups 4 --run "$work/gpu-one" >"$work/out-one" 2>&1
        run_ranks 4 "$cgpipe" train $small --replicas 2 --stages 2 --verbose --run "$work/gpus" >"$work/out" 2>"$work/err"
    }
    check "cuda-host: the weights of one pipeline" [ "$(hash_of "$work/out-one")" = "$(hash_of "$work/out")" ]
    check "cuda-host: messages pass through host memory" grep -q '^edge 0 .*, over host memory$' "$work/out"
    # shellcheck disable=SC2086 # split into words
    compare "cuda-host: batch norms" 2 2 2 $resnet --batch 6 --chunks 3 --devices cuda-host --steps 1
    same_states "cuda-host"
    unset CGP_PLUGIN_PATH CGP_CUDA_HOST_DELAY CGP_CUDA_HOST_IPC
fi

# --- resumed by other numbers of replicas, and after a failure ---

# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" train $gpt2 --steps 10 --gradient-groups 4 --run "$work/straight" >"$work/out-straight" 2>&1
    run_ranks 4 "$cgpipe" train $gpt2 --steps 2 --gradient-groups 4 --replicas 4 --stages 1 --shard-optimizer --run "$work/resumed" >"$work/log" 2>&1
    run_ranks 4 "$cgpipe" train --resume --run "$work/resumed" --steps 4 --replicas 2 --stages 2 >>"$work/log" 2>&1
    "$cgpipe" train --resume --run "$work/resumed" --steps 6 --replicas 1 >>"$work/log" 2>&1
    CGP_FAULT=kill:rank=1,at=0B1@8 run_ranks 2 "$cgpipe" train --resume --run "$work/resumed" --steps 10 --replicas 2 --stages 1 --save-every 1 >>"$work/log" 2>"$work/err"
    check "a kill in mid-step ends all ranks" [ $? != 0 ]
    run_ranks 2 "$cgpipe" train --resume --run "$work/resumed" >"$work/out" 2>"$work/err"
}
check "resumed: the weights of a run that was not stopped" [ "$(hash_of "$work/out-straight")" = "$(hash_of "$work/out")" ]
check "resumed: the groups stay" [ "$(groups_of "$work/resumed")" = "[2,4]" ]
check "one replica writes the checkpoint" [ "$(ls "$work/resumed/latest" | tr '\n' ' ')" = "checkpoint.json checkpoint.sha256 optimizer.safetensors weights.safetensors " ]

# --- plans that were searched ---

words="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32,tied=1 --dropout 0.1 --batch 8 --gradient-groups 4"
train="--data $work/text.txt --seed 3 --steps 10"
# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" plan $words --devices 4 --search --replicas auto --schedule zb-v --recompute always --choice 2 --plan-out "$work/plan.json" --json "$work/found.json" >"$work/out" 2>"$work/err"
    check "the second plan of the search is of 2 x 2" [ "$(jq -c '[.choices[1].replicas, .choices[1].stages]' "$work/found.json")" = "[2,2]" ]
    run_ranks 4 "$cgpipe" train --plan "$work/plan.json" $train --run "$work/planned" >"$work/out" 2>"$work/err"
    check "a plan file: the weights of one pipeline" [ "$(hash_of "$work/out-straight")" = "$(hash_of "$work/out")" ]
    check "a plan file: replicas, groups and schedule" [ "$(groups_of "$work/planned") $(jq -r .options.schedule "$work/planned/run.json")" = "[2,4] zb-v" ]
    run_ranks 4 "$cgpipe" train --plan "$work/plan.json" $train --replicas auto --run "$work/auto" >"$work/out" 2>"$work/err"
    check "a plan file with --replicas auto" [ "$(hash_of "$work/out-straight")" = "$(hash_of "$work/out")" ]
    "$cgpipe" plan $words --stages 2 --replicas 2 --json "$work/default.json" >"$work/out" 2>"$work/err"
    limit=$(($(jq '[.devices[].planned_bytes] | max' "$work/default.json") - 1))
    run_ranks 2 "$cgpipe" train $words $train --stages 2 --replicas 2 --memory-limit $limit --run "$work/limited" >"$work/out" 2>"$work/err"
    check "a limit: replicas search a plan that fits" grep -q '^search  .* plans within ' "$work/out"
    check "a limit: the weights of one pipeline" [ "$(hash_of "$work/out-straight")" = "$(hash_of "$work/out")" ]
    run_ranks 2 "$cgpipe" train $words $train --stages 2 --replicas 2 --memory-limit 100K --run "$work/none" >"$work/out" 2>"$work/err"
    check "an impossible limit: a command for these processes" grep -q '; this fits: mpirun -n 2 cgpipe train .* --replicas 2 ' "$work/err"
}

# --- an exchange may take longer than the time limit of an action ---

# shellcheck disable=SC2086 # split into words
CGP_PIECE_BYTES=4096 CGP_MPI_DELAY=0.02 run_ranks 2 "$cgpipe" train $gpt2 --steps 1 --gradient-groups 4 --replicas 2 --timeout 1 --json "$work/slow.json" --run "$work/slow" >"$work/out" 2>"$work/err"
check "a slow exchange is no hang" [ $? = 0 ]
check "a slow exchange is longer than the limit" jq -e '.step_seconds > 1' "$work/slow.json"

# --- killed while gradients are added: small pieces over a slow network take most of a step ---

# shellcheck disable=SC2086 # split into words
CGP_PIECE_BYTES=4096 CGP_MPI_DELAY=0.001 run_ranks 2 "$cgpipe" train $gpt2 --steps 10 --gradient-groups 4 --replicas 2 --save-every 1 --run "$work/killed" >"$work/log" 2>&1 &
for _ in $(seq 600); do
    [ ! -e "$work/killed/step-00000002" ] || break
    sleep 0.05
done
pid=$(pgrep -f -- "^$cgpipe train .*--run $work/killed\$" | tail -n 1)
[ -z "$pid" ] || kill -KILL "$pid"
wait
check "a kill while gradients are added leaves an unfinished run" [ -e "$work/killed/step-00000002" -a ! -e "$work/killed/step-00000010" ]
CGP_PIECE_BYTES=4096 run_ranks 2 "$cgpipe" train --resume --run "$work/killed" >"$work/out" 2>"$work/err"
check "which resumes to the weights of a run that was not stopped" [ "$(hash_of "$work/out-straight")" = "$(hash_of "$work/out")" ]

# --- as many replicas as there are processes, also after a replica is lost ---

cat >"$work/start" <<'EOF'
ranks=$1
shift
[ "$ranks" != 4 ] || export CGP_FAULT=kill:rank=3,at=0B0@6
exec "$mpirun" -n "$ranks" "$@"
EOF
export mpirun
if [ "$mpi" = "Open MPI" ]; then
    # shellcheck disable=SC2086 # split into words
    "$cgpipe" supervise --ranks 4,2 --restarts 5 --backoff 0.1 --grace 2 -- bash "$work/start" '{ranks}' "$cgpipe" train $gpt2 --steps 10 --save-every 4 --stages 1 --replicas auto --gradient-groups 4 --run "$work/elastic" --resume >"$work/out" 2>"$work/err"
    check "a lost replica: the run ends with the next power of two" [ $? = 0 ]
    check "a lost replica: the weights of a run that was not stopped" [ "$(hash_of "$work/out-straight")" = "$(hash_of "$work/out")" ]
    check "a lost replica: fewer replicas, the same groups" [ "$(groups_of "$work/elastic")" = "[2,4]" ]
fi

# --- what is refused ---

refused() { # RANKS LINE OPTION...
    local n=$1 line=$2
    shift 2
    if [ "$n" = 1 ]; then "$cgpipe" "$@" >"$work/out" 2>"$work/err"; else run_ranks "$n" "$cgpipe" "$@" >"$work/out" 2>"$work/err"; fi
    check "$line" grep -qF -- "cgpipe: $line" "$work/err"
}
# shellcheck disable=SC2086 # split into words
{
    refused 3 "--replicas 2: expected one process, or a multiple of 2 processes over MPI, got 3 (mpirun -n 2 cgpipe train ...)" train $gpt2 --replicas 2 --steps 1 --run "$work/none"
    refused 3 "replicas: expected a power of two, got 3 (2 and 4 are the nearest)" train $gpt2 --replicas 3 --steps 1 --run "$work/none"
    refused 2 "replicas: expected at most the 1 gradient groups, got 2 (2 or more groups, or 1 replicas)" train $gpt2 --replicas 2 --gradient-groups 1 --steps 1 --run "$work/none"
    refused 3 "--replicas auto: expected 2 processes for each replica, and a power of two of replicas, got 3 processes (mpirun -n 2 cgpipe train ...)" train $gpt2 --replicas auto --stages 2 --steps 1 --run "$work/none"
    refused 3 "--replicas auto: expected 1 process for each replica, and a power of two of replicas, at most the 2 gradient groups, got 3 processes (mpirun -n 2 cgpipe train ...)" train $gpt2 --replicas auto --gradient-groups 2 --steps 1 --run "$work/none"
    refused 1 "--replicas auto: expected a number (cgpipe train and cgpipe bench run replicas in their processes)" check gpt2 --replicas auto
    refused 4 "--plan $work/plan.json: replicas: expected 2, as planned, got 4 (leave out --replicas; or make a plan of this one" train --plan "$work/plan.json" $train --replicas 4 --run "$work/none"
    refused 3 "--replicas 2: expected one process, or a multiple of 2 processes over MPI, got 3 (mpirun -n 2 cgpipe train ...)" train --plan "$work/plan.json" $train --run "$work/none"
    refused 1 '--replicas 0: expected a whole number >= 1, or auto, got "0"' plan gpt2 --replicas 0
    refused 1 "--replicas 2: expected 1 (cgpipe check takes no replicas; --gradient-groups makes their bits with 1)" check gpt2 --replicas 2
}
exit $failed
