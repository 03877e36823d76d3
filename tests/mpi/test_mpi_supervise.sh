#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_supervise.sh SOURCE_DIR BUILD_DIR -- `cgpipe supervise` runs MPI processes. After a
# failure it starts fewer ranks. Their final weights equal the weights of one process. A stop
# request or a signal causes a checkpoint. No process outlives `cgpipe supervise`.
set -u
build_dir=$(cd "$2" && pwd)
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
needs_open_mpi
export mpirun
gpt2="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32 --data $work/text.txt --batch 8 --chunks 4 --seed 3 --stages 4 --validation 0"
make_text

until_step() { # RUN STEP : wait at most 120 s
    for _ in $(seq 2400); do
        [ -e "$1/metrics.jsonl" ] && [ "$(wc -l <"$1/metrics.jsonl")" -ge "$2" ] && return
        sleep 0.05
    done
}
until_said() { # TEXT : wait at most 120 s
    for _ in $(seq 2400); do
        grep -q "$1" "$work/err" && return
        sleep 0.05
    done
}
left() { pgrep -f "^$cgpipe train .*--run $work/$1"; }
kill_rank() { pkill -KILL -n -f "^$cgpipe train .*--run $work/$1"; }
supervise() { # RUN RANKS OPTION... : start in the background
    local run=$work/$1 ranks=$2
    shift 2
    "$cgpipe" supervise --ranks "$ranks" --grace 2 -- bash "$work/start" '{ranks}' "$cgpipe" train "$@" --run "$run" --resume >"$work/out" 2>"$work/err" &
    process=$!
}

cat >"$work/start" <<'EOF'
ranks=$1
shift
[ "$ranks" != 4 ] || export CGP_FAULT=fail:1F3
exec "$mpirun" -n "$ranks" "$@"
EOF

# --- four ranks fail at once; one of the next two is killed; a stop request ends the run ---

# shellcheck disable=SC2086 # split into words
supervise killed 4,2,1 $gpt2 --steps 1000000 --save-every 20
until_said 'restart 1 of 3 with 2 ranks from the beginning'
check "four ranks fail without a checkpoint: fewer ranks" [ "$(grep -c supervise "$work/err")" = 1 ]
until_step "$work/killed" 30
kill_rank killed
until_said 'restart 1 of 3 with 2 ranks from step [1-9][0-9]*0$'
check "a rank is killed after a checkpoint: as many ranks, from the checkpoint" [ "$(grep -c supervise "$work/err")" = 2 ]
until_step "$work/killed" $(($(wc -l <"$work/killed/metrics.jsonl") + 20))
"$cgpipe" stop "$work/killed" >"$work/log"
wait $process
check "a stop request: exit code 130" [ $? = 130 ]
check "a stop request: a checkpoint" grep -q 'stop request: stopped after step .* which is saved' "$work/err"
[ $failed = 0 ] || head -50 "$work/err"
step=$(readlink "$work/killed/latest")
# shellcheck disable=SC2086 # split into words
"$cgpipe" train $gpt2 --steps $((10#${step#step-})) --run "$work/straight" >"$work/out-straight" 2>&1
check "the weights of one undisturbed process ($step)" \
    [ "$(grep ^weights_sha "$work/out-straight")" = "$(grep ^weights_sha "$work/out")" ]

# --- a signal from a batch system ---

# shellcheck disable=SC2086 # split into words
supervise stopped 2 $gpt2 --steps 1000000 --save-every 0
until_step "$work/stopped" 2
kill -TERM $process
wait $process
check "SIGTERM to supervise: exit code 130" [ $? = 130 ]
check "SIGTERM to supervise: a checkpoint" grep -q 'SIGUSR1: stopped after step .* which is saved' "$work/err"
check "no process is left" [ -z "$(left stopped)" ]

# --- supervise itself is killed ---

# shellcheck disable=SC2086 # split into words
supervise orphans 2 $gpt2 --steps 1000000 --save-every 1
until_step "$work/orphans" 20
check "two ranks run" [ "$(left orphans | wc -l)" = 2 ]
kill -KILL $process
wait $process 2>/dev/null
for _ in $(seq 1200); do
    [ -n "$(left orphans)" ] || break
    sleep 0.05
done
check "supervise is killed: no rank is left" [ -z "$(left orphans)" ]
check "supervise is killed: nor mpirun" [ -z "$(pgrep -f "mpirun .*--run $work/orphans")" ]
whole=0
for checkpoint in "$work"/orphans/step-*; do
    (cd "$checkpoint" && sha256sum -c --quiet checkpoint.sha256) && whole=$((whole + 1))
done
check "supervise is killed: whole checkpoints only ($whole)" [ "$whole" -ge 1 -a "$whole" = "$(echo "$work"/orphans/step-* | wc -w)" ]
exit $failed
