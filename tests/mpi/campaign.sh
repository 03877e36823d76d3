#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# campaign.sh SOURCE_DIR BUILD_DIR KILLS STOPS [SEED] -- kill and stop ranks, at random actions of
# random steps and with random numbers of ranks and stages. CI does not run this script. In half of
# the runs, mpirun ends all processes after one process has failed; in the other half it does not.
# After each fault, the script checks:
#
#     time      the other ranks end within the time limit + 2 s, with code 3, unless mpirun has
#               killed them
#     verdict   cgpipe diagnose names the rank; the script counts how often the action is right
#     orphans   no process of the run is left
#     resumed   one process resumes the run and gets the weights of an undisturbed run
set -u
build_dir=$2 kills=$3 stops=$4
RANDOM=${5:-$(($(date +%s) % 32768))}
echo "seed ${5:-drawn}"
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
# shellcheck source=tests/mpi/faults.sh
. "$(dirname "$0")/faults.sh"
needs_mpi "$build_dir"
needs_open_mpi
export TERM=dumb
timeout=1 failed=0 exact=0 done=0 resumed=0 steps=8

make_text
gpt2="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32 --data $work/text.txt --batch 8 --chunks 4 --seed 3 --steps $steps --save-every 2"
# shellcheck disable=SC2086 # split into words
sha=$("$cgpipe" train $gpt2 --run "$work/straight" 2>&1 | grep '^weights_sha')
[ -n "$sha" ] || exit 1

complain() { # WHAT
    echo "not ok: $name: $1"
    failed=$((failed + 1))
    sed 's/^/    /' "$work/err" "$work/diagnose"
    cp -r "$work/run/diagnosis" "$work/kept-$done" 2>/dev/null
}

# Wait until a process of the run is stopped, and write down the time in seconds since the epoch.
watch_stop() {
    while sleep 0.02; do
        for pid in $(pgrep -f "^$cgpipe train .*--run $work/run"); do
            if grep -q '^State:.T' "/proc/$pid/status" 2>/dev/null; then
                date +%s.%N >"$work/stopped"
                return
            fi
        done
    done
}

injure() { # kill|stop
    local effect=$1 schedules=(1f1b gpipe zb-1p interleaved) kinds=(F B) n stages stage action virtual=() schedule begin=""
    n=$((2 + RANDOM % 3))
    stages=$((n + RANDOM % (5 - n)))
    schedule=${schedules[RANDOM % 4]}
    stage=$((RANDOM % stages))
    action=$stage${kinds[RANDOM % 2]}$((RANDOM % 4))
    [ "$schedule" = zb-1p ] && action=${action/B/I}
    [ "$schedule" = interleaved ] && virtual=(--virtual 2)
    launcher=""
    ((RANDOM % 2)) && launcher=--enable-recovery
    local at=$((RANDOM % steps)) victim
    # each rank has a contiguous block of devices; larger blocks come first
    victim=$(awk -v s="$stage" -v d="$stages" -v n="$n" 'BEGIN { for (r = 0; r < n; r++) { e += int(d / n) + (r < d % n); if (s < e) { print r; exit } } }')
    name="$effect $action@$at on rank $victim, $n ranks, $stages stages, $schedule $launcher"
    rm -rf "$work/run" "$work/stopped"
    [ "$effect" = stop ] && { watch_stop & watcher=$!; }
    # shellcheck disable=SC2086 # split into words
    run_fault "$n" "$effect:$action@$at" "$cgpipe" train $gpt2 --stages "$stages" --schedule "$schedule" "${virtual[@]}" \
        --run "$work/run" --timeout $timeout >"$work/out" 2>"$work/err"
    [ "$effect" = stop ] && { kill "$watcher" 2>/dev/null; wait "$watcher" 2>/dev/null; begin=$(cat "$work/stopped" 2>/dev/null); }
    [ "$effect" = kill ] && begin=$(cut -d' ' -f2 "$work/codes/$victim" 2>/dev/null)
    for ((r = 0; r < n; r++)); do
        [ "$r" = "$victim" ] || [ ! -e "$work/codes/$r" ] && continue
        [ "$(code_of $r)" = 3 ] || complain "rank $r: code $(code_of $r)"
        [ -z "$begin" ] || awk "BEGIN { exit !($(cut -d' ' -f2 "$work/codes/$r") - $begin < $timeout + 2) }" ||
            complain "rank $r: ended after $(awk "BEGIN { print $(cut -d' ' -f2 "$work/codes/$r") - $begin }") s"
    done
    [ -n "$launcher" ] && [ "$(find "$work/codes" -type f | wc -l)" -lt $((n - 1)) ] && complain "ranks without a code"
    local verdict
    verdict=$(failed_rank_of "$work/run")
    [ "${verdict% *}" = "silent $victim" ] || complain "verdict $verdict"
    [ "$verdict" = "silent $victim $action" ] && exact=$((exact + 1))
    [ -z "$(pgrep -f "^$cgpipe train .*--run $work/run")" ] || complain "a process is left"
    if [ -e "$work/run/run.json" ]; then # without a checkpoint, the run's directory was deleted
        "$cgpipe" train --resume --run "$work/run" --stages 2 --schedule 1f1b --virtual 1 >"$work/resumed" 2>&1
        resumed=$((resumed + 1))
    else
        # shellcheck disable=SC2086 # split into words
        "$cgpipe" train $gpt2 --run "$work/run" --overwrite >"$work/resumed" 2>&1
    fi
    [ "$(grep '^weights_sha' "$work/resumed")" = "$sha" ] || { complain "resumed to other weights"; tail -5 "$work/resumed"; }
    done=$((done + 1))
    ((done % 10)) || echo "$done done, $exact with the very action, $failed complaints"
}

for ((i = 0; i < kills || i < stops; i++)); do
    ((i < kills)) && injure kill
    ((i < stops)) && injure stop
done
echo "$kills kills and $stops stops: $failed complaints; the very action named $exact times, $resumed resumed from a checkpoint"
[ $failed = 0 ]
