#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_kills.sh SOURCE_DIR BUILD_DIR -- kill trainings with SIGKILL at random moments, 200 times (50
# in .ci/run) or as often as possible in 300 s. After each kill, the run resumes in another layout. At the end, the
# run is bit-identical to an undisturbed run.
#
# The test first measures the duration of start-up. The moments of the kills are uniformly
# distributed. They begin at the start of the process and end some steps after start-up, so kills
# hit start-up, steps and saves. When a run has finished, it is checked, and the next run begins.
# CGP_TEST_SEED=N repeats layouts and moments, but a kill may then hit another action.
source "$(dirname "$0")/support.sh"

seed=${CGP_TEST_SEED:-$((${EPOCHREALTIME/./} % 1000000007))}
echo "CGP_TEST_SEED=$seed"
RANDOM=$seed

most_kills=200
if ! is_whole; then most_kills=50; fi
seconds_allowed=300 steps=600
training="gpt2:layers=2,width=16,heads=2,seq=8 --data $work/files/text.txt --batch 4 --chunks 4
    --dropout 0.1 --clip 1 --steps $steps --save-every 2 --validation 0"
layers=6

now_us() { echo "${EPOCHREALTIME/./}"; }
below() { echo $((((RANDOM << 15) | RANDOM) % $1)); }
one_of() { shift "$(below $#)" && echo "$1"; }
sha() { sed -n 's/^weights_sha256 //p' "$1"; }
losses() { sed 's/,"seconds".*"bubble":[^,}]*//' "$1/metrics.jsonl"; }
starts() { grep -cs '"date"' "$1/run.json"; }

# Print a random balance: the number of layers of each stage, for 1 to 4 stages.
draw_balance() {
    local stages=$((1 + $(below 4))) left=$layers balance="" size
    while [ "$stages" -gt 1 ]; do
        size=$((1 + $(below $((left - stages + 1)))))
        balance+="$size,"
        left=$((left - size)) stages=$((stages - 1))
    done
    echo "$balance$left"
}

draw_layout() {
    echo "--balance $(draw_balance) --schedule $(one_of gpipe 1f1b)" \
        "--recompute $(one_of never always except_last selective always+selective except_last+selective)"
}

# --- checks after a kill ---

# Check that every checkpoint is intact: sha256sum accepts it, and the program can load it.
whole_checkpoints() {
    local directory
    for directory in "$1"/step-*; do
        [ -e "$directory" ] || continue
        (cd "$directory" && sha256sum -c --quiet checkpoint.sha256) >&2 || return 1
        "$program" sample "$1" --length 0 --from-step $((10#${directory##*-})) >&2 || return 1
    done
}

# Check that metrics.jsonl has the lines of steps 1, 2 .. in order, at least up to the latest
# checkpoint. The last line may be incomplete.
whole_metrics() {
    local latest
    latest=$(readlink "$1/latest") || return 0
    awk -v least="$((10#${latest#step-}))" -F '[:,]' '
        !/^\{"step":[0-9]+,.*\}$/ {torn = 1; next}
        torn || $2 != NR {exit 1}
        {last = $2}
        END {exit !(last >= least)}' "$1/metrics.jsonl"
}

# Check that no process but the last one has left temporary files.
only_own_leftovers() {
    [ -z "$(find "$1" -name '.cgpipe-*' ! -name "*-$2-*")" ]
}

check_after_kill() { # RUN PID STARTS_BEFORE WORDS
    local trouble=""
    whole_checkpoints "$1" 2>"$err" || trouble="a damaged checkpoint: $(cat "$err")"
    whole_metrics "$1" || trouble+=" gaps in metrics.jsonl"
    if [ "$(starts "$1")" != "$3" ]; then
        only_own_leftovers "$1" "$2" || trouble+=" left-overs: $(ls -A "$1")"
        if compgen -G "$1/.cgpipe-*" >/dev/null; then in_save=$((in_save + 1)); fi
    else
        in_start=$((in_start + 1))
    fi
    [ -z "$trouble" ] || not_ok "after kill $kills ($4): $trouble"
}

check_end() { # RUN
    check "run $runs: the same weights" test "$(sha "$out")" = "$weights"
    check "run $runs: one line a step, the same losses" test "$(losses "$1")" = "$straight_losses"
    check "run $runs: no left-overs" test "$(ls -A "$1" | tr '\n' ' ')" = \
        "latest measured.json metrics.jsonl report.html run.json step-$(printf %08d $((steps - 2))) step-$(printf %08d $steps) "
    rm -rf "$1"
}

# --- the undisturbed run, and durations ---

begin=$(now_us)
run train $training --run straight
steps_us=$((($(now_us) - begin) / steps))
check "the undisturbed run: exit code 0" exits 0
weights=$(sha "$out") straight_losses=$(losses straight)
check "the undisturbed run: a line a step" lines $steps straight/metrics.jsonl
begin=$(now_us)
for _ in 1 2 3 4; do run train --resume --run straight; done
start_us=$((($(now_us) - begin) / 4))
longest_us=$((2 * start_us + 8 * steps_us))
echo "a start takes $start_us us, a step $steps_us us; kills up to $longest_us us after a start"

# --- kills ---

runs=1 kills=0 in_start=0 in_save=0 began=$SECONDS
while [ $kills -lt $most_kills ] && [ $((SECONDS - began)) -lt $seconds_allowed ]; do
    words="train $training --resume --run killed $(draw_layout)"
    delay=$(printf '0.%06d' "$(below $longest_us)")
    before=$(starts killed)
    "$program" $words >"$out" 2>"$err" </dev/null &
    process=$!
    sleep "$delay"
    kill -KILL $process 2>/dev/null
    wait $process 2>/dev/null
    code=$?
    if [ $code -eq 137 ]; then
        kills=$((kills + 1))
        check_after_kill killed $process "$before" "$delay s, $words"
    elif [ $code -eq 0 ]; then
        check_end killed
        runs=$((runs + 1))
    else
        not_ok "exit code $code: $(cat "$err") (cgpipe $words)"
        break
    fi
done
echo "$kills kills in $((SECONDS - began)) s over $runs runs: $in_start before the run was open," \
    "$in_save in the middle of a save"
check "kills" test $kills -gt 0
# shellcheck disable=SC2046
run train $training --resume --run killed $(draw_layout)
check "after the last kill: exit code 0" exits 0
check_end killed

finish
