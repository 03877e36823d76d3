#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_signals.sh SOURCE_DIR BUILD_DIR -- after SIGINT, SIGTERM, SIGHUP, SIGUSR1 or SIGXCPU, a
# training finishes the current step, saves, and prints how to resume. A second SIGINT or SIGTERM
# ends the process at once, and the saved files stay intact. The training also finishes the step and
# saves if the process that reads the output ends.
source "$(dirname "$0")/support.sh"
set -m # without job control, background jobs ignore SIGINT

words="gpt2:layers=2,width=64,heads=2,seq=64 --data $work/files/text.txt --batch 8 --chunks 4 --seed 1"
sha() { sed -n 's/^weights_sha256 //p' "$1"; }
steps() { sed -n 's/^{"step":\([0-9]*\),.*}$/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
one_to() { seq -s ' ' 1 "$1" | sed 's/$/ /'; }

# Slow down the steps, so that a training still runs for seconds after this script has detected a
# step.
slow=delay:0F0:0.15

# start RUN WORDS... : start a training with slow steps in the background.
start() {
    local directory=$1
    shift
    CGP_FAULT=$slow "$program" train $words --run "$directory" "$@" >"$out" 2>"$err" </dev/null &
    process=$!
    # Wait until the process has called exec. Before that, the process is a copy of this shell. A
    # signal would then run the shell's trap, which deletes $work.
    while [ "/proc/$process/exe" -ef "/proc/$$/exe" ]; do :; done
}
told() { grep -v CGP_FAULT "$err" >"$err.told"; [ "$(wc -l <"$err.told")" -eq "$1" ]; } # NUMBER : so many lines on stderr, without those on the delay

# until_has TEXT FILE : wait for the text in the file, at most 120 s.
until_has() {
    for _ in $(seq 6000); do
        grep -qs -- "$1" "$2" && return 0
        sleep 0.02
    done
    return 1
}

finished() {
    wait -f "$process" 2>/dev/null
    code=$?
    while [ $code -eq 147 ]; do # 147: stopped; it will continue
        wait -f "$process" 2>/dev/null
        code=$?
    done
}

saved() { # RUN : check that all checkpoints are complete
    local directory
    for directory in "$1"/step-*; do
        (cd "$directory" && sha256sum -c --quiet checkpoint.sha256) || return 1
        "$program" sample "$1" --length 0 --from-step "$((10#${directory##*step-}))" || return 1
    done
}

run train $words --steps 12 --run straight
whole=$(sha "$out")

# --- one signal ---

for signal in INT TERM HUP USR1 XCPU; do
    start "one-$signal" --steps 12 --save-every 0
    until_has '"step":2,' "one-$signal/metrics.jsonl"
    kill -s "$signal" "$process"
    finished
    check "SIG$signal: exit code 130" exits 130
    check "SIG$signal: one line on standard error" told 1
    check "SIG$signal: it says what and how to go on" grep -q \
        "^cgpipe: SIG$signal: stopped after step [0-9]* of 12, which is saved (cgpipe train --resume --run one-$signal continues)$" \
        "$err"
    done=$(wc -l <"one-$signal/metrics.jsonl")
    check "SIG$signal: the step it was in is saved" \
        test "$(readlink "one-$signal/latest")" = "$(printf 'step-%08d' "$done")"
    check "SIG$signal: checkpoints are whole" saved "one-$signal"
    check "SIG$signal: no left-overs" test -z "$(ls -d "one-$signal"/.cgpipe-* 2>/dev/null)"
    run train --resume --run "one-$signal" --stages 2
    check "SIG$signal: resumed, the same weights" test "$(sha "$out")" = "$whole"
    check "SIG$signal: resumed, a line each" test "$(steps "one-$signal")" = "$(one_to 12)"
done

# --- a signal in every phase of a run, after some hundredths of a second ---

for hundredths in 00 01 02 03 05 08 12 20; do
    rm -rf phase
    start phase --steps 12 --save-every 5
    sleep "0.$hundredths"
    kill -INT "$process" 2>/dev/null
    finished
    # The exit code is 130 even before the program installs its signal handlers. A signal after the
    # end has no effect.
    check "SIGINT after 0.$hundredths s: 130 or done ($code)" \
        test "$code" -eq 130 -o "$code" -eq 0
    [ -e phase ] && check "SIGINT after 0.$hundredths s: nothing half-written" \
        test -z "$(ls -d phase/.cgpipe-* 2>/dev/null)"
    run train $words --steps 12 --run phase --resume
    check "SIGINT after 0.$hundredths s: goes on to the same weights" test "$(sha "$out")" = "$whole"
done

start first --steps 12
until_has '^memory ' "$out" # just before or after the first step
kill -INT "$process"
finished
check "SIGINT at the beginning: exit code 130" exits 130
check "SIGINT at the beginning: told" grep -qE \
    '^cgpipe: SIGINT: stopped (before a step|after step [0-9]* of 12, which is saved)( \(cgpipe train --resume --run first continues\))?$' \
    "$err"

# --- at the end ---

start sampling --steps 2 --sample 1000000
until_has '^sample of' "$out"
kill -TERM "$process"
finished
check "SIGTERM while sampling: exit code 130" exits 130
check "SIGTERM while sampling: not to its end" test "$(wc -c <"$out")" -lt 1000000
check "SIGTERM while sampling: told" has "cgpipe: SIGTERM: stopped after step 2 of 2, which is saved" "$err"

# The delay also slows down the mini-batches of an evaluation.
start evaluating --steps 2 --validation 0.5 --save-every 0
until_has 'step 2/2' "$out"
kill -TERM "$process"
finished
check "SIGTERM while evaluating: exit code 130" exits 130
check "SIGTERM while evaluating: no loss" test -z "$(grep '^validation' "$out")"
check "SIGTERM while evaluating: saved" saved evaluating

# --- a signal that the parent ignores stays ignored, as nohup requires ---

for signal in INT HUP; do
    (trap '' "$signal" && exec "$program" train $words --run "ignored-$signal" --steps 12) >"$out" 2>"$err" &
    process=$!
    until_has '"step":1,' "ignored-$signal/metrics.jsonl"
    kill -s "$signal" "$process"
    finished
    check "SIG$signal ignored from the start: exit code 0" exits 0
    check "SIG$signal ignored from the start: all steps" test "$(steps "ignored-$signal")" = "$(one_to 12)"
done
nohup "$program" train $words --run nohup --steps 12 >"$out" 2>"$err" </dev/null &
process=$!
until_has '"step":1,' nohup/metrics.jsonl
kill -HUP "$process"
finished
check "nohup: exit code 0" exits 0
check "nohup: all steps" test "$(steps nohup)" = "$(one_to 12)"

# --- closing a terminal sends SIGHUP twice: from the shell and from the system ---

start hangup --steps 12 --save-every 0
until_has '"step":2,' hangup/metrics.jsonl
kill -HUP "$process"
kill -HUP "$process" 2>/dev/null
kill -TERM "$process" 2>/dev/null
finished
check "SIGHUP, SIGHUP, SIGTERM: exit code 130" exits 130
check "SIGHUP, SIGHUP, SIGTERM: the step it was in is saved" saved hangup
run train --resume --run hangup
check "SIGHUP, SIGHUP, SIGTERM: resumed, the same weights" test "$(sha "$out")" = "$whole"

# --- the reader of the output has ended ---

closed() { # NAME RUN LINES WORDS... : sets $code to the program's exit code
    local name=$1 directory=$2 count=$3
    shift 3
    { CGP_FAULT=$slow "$program" train $words --run "$directory" "$@" 2>"$err" </dev/null; echo $? >closed-code; } |
        head -n "$count" >"$out"
    code=$(cat closed-code)
    check "$name: exit code 141" exits 141
    check "$name: nothing on standard error" told 0
}
mkfifo gone && exec 3<>gone 4>gone 3>&- # descriptor 4 is a pipe without a reader

for ignored in '' PIPE; do # some services and CI runners ignore SIGPIPE
    [ -n "$ignored" ] && trap '' PIPE
    closed "| head in the steps $ignored" "head-$ignored" 16 --steps 12 --save-every 0 --interval 1
    trap - PIPE
    done=$(wc -l <"head-$ignored/metrics.jsonl")
    check "| head in the steps: before the last ($done)" test "$done" -lt 12
    check "| head in the steps: the step it was in is saved" \
        test "$(readlink "head-$ignored/latest")" = "$(printf 'step-%08d' "$done")"
    run train --resume --run "head-$ignored"
    check "| head in the steps: resumed, the same weights" test "$(sha "$out")" = "$whole"
    check "| head in the steps: resumed, a line each" test "$(steps "head-$ignored")" = "$(one_to 12)"
done
"$program" train $words --run begin --steps 2 --validation 0 >&4 2>"$err" </dev/null
code=$?
check "no reader from the beginning: exit code 141" exits 141
check "no reader from the beginning: nothing on standard error" empty "$err"
slow='' closed "| head of a sample" sampled 30 --steps 2 --sample 1000000
check "| head of a sample: all steps" test "$(steps sampled)" = "$(one_to 2)"
"$program" train $words --run json --steps 2 --json - >&4 2>"$err" </dev/null
code=$?
exec 4>&-
check "the JSON has no reader: exit code 141" exits 141
check "the JSON has no reader: not a word of it" test -z "$(grep -i 'written\|pipe:' "$err")"
check "the JSON has no reader: all steps" test "$(steps json)" = "$(one_to 2)"

# --- two signals at once ---

words="$words --validation 0"
start twice --steps 1000 --save-every 1
until_has sha256 twice/latest/checkpoint.json
kill -STOP "$process" # stopped, so that both signals arrive together
kill -INT "$process"
kill -TERM "$process"
kill -CONT "$process"
finished
check "two signals: exit code 130" exits 130
check "two signals: the step is not waited for" told 0
check "two signals: checkpoints are whole" saved twice
steps=$(($(wc -l <twice/metrics.jsonl) + 1))
run train --resume --run twice --steps "$steps"
check "two signals: it goes on" exits 0
check "two signals: a line each" test "$(steps twice)" = "$(one_to "$steps")"
check "two signals: no left-overs" test -z "$(ls -d twice/.cgpipe-* 2>/dev/null)"

# --- before a run exists ---

# This search takes minutes. If the program only recorded a signal, the signal would have no effect
# until the search ends.
timeout -k 60 -s TERM 2 "$program" train gpt2:layers=200,width=32,heads=2,seq=32,vocab=256 --data text.txt --stages 16 \
    --batch 64 --chunks 64 --memory-limit 2M --steps 1 --run searched >"$out" 2>"$err" </dev/null
code=$?
check "a signal ends the search of a plan at once" exits 124
check "... and leaves no run" test ! -e searched

finish
