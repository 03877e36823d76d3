#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_supervise.sh SOURCE_DIR BUILD_DIR -- `cgpipe supervise` restarts a command after failures,
# with other numbers of ranks. It stops doing so when the command succeeds, is stopped, or makes no
# progress. However `cgpipe supervise` ends, no process of the command outlives it.
source "$(dirname "$0")/support.sh"
libraries=$2 # $ORIGIN does not work without /proc
set -m # without job control, background jobs ignore SIGINT

mark=31$$ # sleeping for this unusual number of seconds identifies this test's processes
left() { pgrep -f "sleep $mark" >/dev/null; }
gone() { # wait at most 5 s until no such process is left
    for _ in $(seq 250); do
        left || return 0
        sleep 0.02
    done
    return 1
}
until_file() { # FILE : wait until FILE exists, at most 20 s.
    for _ in $(seq 1000); do
        [ -e "$1" ] && return 0
        sleep 0.02
    done
    return 1
}
start() { "$program" supervise --backoff 0.01 "$@" >"$out" 2>"$err" </dev/null & process=$!; }
finished() {
    wait "$process" 2>/dev/null
    code=$?
}
date='[0-9]*-[0-9]*-[0-9]*T[0-9]*:[0-9]*:[0-9]*Z'
says() { grep -q "^cgpipe: supervise: $date: $1\$" "$err"; }

# --- the command line ---

fails 2 "supervise: COMMAND is missing (cgpipe supervise --ranks 4,2,1 -- mpirun ..." supervise
fails 2 "mpirun: expected -- before the command (-- mpirun ...)" supervise mpirun -n 2
fails 2 "supervise: the command has {ranks}, but there is no --ranks (--ranks 4,2,1)" supervise --run r -- echo '{ranks}'
fails 2 "--ranks: the command has no {ranks} (... -- mpirun -n {ranks} cgpipe train ...)" supervise --run r --ranks 2 -- true
fails 2 '--ranks 4,0: expected whole numbers >= 1 with commas between, got "4,0"' supervise --ranks 4,0 -- true
fails 2 "supervise: --run is missing, here or in the command ..." supervise -- true
fails 2 "supervise: the command has no --resume to continue after a failure ..." supervise -- cgpipe train --run r
fails 2 "supervise: --from-step would go back to that step at every restart (leave it out)" \
    supervise -- cgpipe train --resume --run r --from-step 3
fails 2 "supervise: --from-step would go back to that step at every restart (leave it out)" \
    supervise -- cgpipe train --resume --run r --from-step=3
fails 2 "--max-restarts: unknown option (did you mean --restarts?)" supervise --max-restarts 3 -- true

# --- how cgpipe supervise ends ---

mkdir r
run supervise --backoff 0.01 --run r -- sh -c 'printf "%s\n" "$@" >"$0"' "a file" "two  words" '*' '{run}' ''
check "arguments: exit code 0" exits 0
check "arguments: reach the command as they are" test "$(cat "a file")" = "$(printf '%s\n' "two  words" '*' '{run}' '')"
check "the command ended well: supervise is silent" empty "$err"
run supervise --backoff 0.01 --run r -- sh -c 'read -r line || echo "nothing: $line"'
check "standard input has nothing" has "nothing: " "$out"

ends() { # NAME CODE COMMAND... : check that supervise ends after one start
    local name=$1 expected=$2
    shift 2
    rm -f started
    run supervise --backoff 0.01 --run r --restarts 2 -- "$@"
    check "$name: exit code $expected" exits "$expected"
    check "$name: no restart" test ! -e r/restarts.jsonl
}
ends "a wrong command line" 2 sh -c 'exit 2'
ends "a sample that cannot be used" 4 sh -c 'exit 4'
ends "a stopped training" 130 sh -c 'exit 130'
ends "no reader" 141 sh -c 'exit 141'
ends "no such command" 2 ./no-such-command
check "no such command: why" has "cgpipe: ./no-such-command: cannot be started (No such file or directory)" "$err"

# --- restarts ---

run supervise --backoff 0.01 --run r --ranks 4,2,1 -- sh -c 'echo {ranks} >>numbers; exit 5'
check "no progress: exit code 3" exits 3
check "no progress: the next number each time" test "$(tr '\n' ' ' <numbers)" = "4 2 1 1 "
check "no progress: a line each" lines 4 "$err"
check "no progress: the first" says 'exit code 5; restart 1 of 3 with 2 ranks from the beginning'
check "no progress: the last" says \
    'exit code 5; gave up after 3 restarts without a newer checkpoint (cgpipe train --resume --run r continues from the beginning)'
check "no progress: a record each" lines 4 r/restarts.jsonl
check "no progress: the record" grep -q "^{\"date\":\"$date\",\"reason\":\"exit code 5\",\"restart\":true,\"ranks\":2,\"step\":null}$" r/restarts.jsonl

rm -f numbers r/restarts.jsonl
run supervise --backoff 0.01 --restarts 2 --ranks 4,2,1 -- sh -c 'echo {ranks} >>numbers
    n=$(wc -l <numbers)
    case $n in 1 | 2 | 4) mkdir r/step-0000000$n && echo {} >r/step-0000000$n/checkpoint.json ;; 6) exit 0 ;; esac
    kill -KILL $$' --run r
check "progress: exit code 0" exits 0
check "progress: keeps the number, and counts anew" test "$(tr '\n' ' ' <numbers)" = "4 4 4 2 2 1 "
check "progress: a signal" says 'signal 9 (Killed); restart 1 of 2 with 4 ranks from step 2'
check "progress: counted" says 'signal 9 (Killed); restart 2 of 2 with 2 ranks from step 2'

mkdir r/step-99999999 r/step-99999998 other && echo {} >other/checkpoint.json && ln -s ../other r/step-99999997
mkdir r/step-99999998/checkpoint.json
run supervise --backoff 0.01 --run r --restarts 2 -- sh -c 'mkdir r/step-10000000 2>/dev/null; exit 1'
check "directories without a checkpoint: exit code 3" exits 3
check "directories without a checkpoint are no progress" lines 3 "$err"
check "directories without a checkpoint: goes on from the last one" says 'exit code 1; restart 1 of 2 from step 4'
rm -r r/step-9999999? r/step-10000000

# --- the time between restarts ---

ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
begun=$(ms)
run supervise --backoff 0.2 --run r -- sh -c 'exit 1'
took=$(($(ms) - begun))
check "back-off: 0.2 s, 0.4 s, 0.8 s at least ($took ms)" test $took -ge 1400
begun=$(ms)
run supervise --run r --restarts 1 -- sh -c 'exit 1'
took=$(($(ms) - begun))
check "back-off: a second at least without an option ($took ms)" test $took -ge 1000
"$program" supervise --backoff 1000 --run r -- sh -c 'exit 1' >"$out" 2>"$err" </dev/null &
process=$!
until_said() { # TEXT : wait for this message, at most 20 s
    for _ in $(seq 1000); do
        grep -q "$1" "$err" && return 0
        sleep 0.02
    done
    return 1
}
until_said 'restart 1 of 3'
kill -TERM $process
finished
check "back-off: a signal ends it: exit code 130" exits 130

run supervise --backoff 0.01 --run r --restarts 0 -- sh -c 'exit 1'
check "--restarts 0: exit code 3" exits 3
check "--restarts 0: none" says 'exit code 1; gave up after 0 restarts .*'

# --- the watchdog ---

run supervise --backoff 0.01 --run r --restarts 0 --timeout 1 --grace 0.2 -- sh -c "trap '' TERM; sleep $mark; sleep $mark"
check "nothing written: exit code 3" exits 3
check "nothing written: why" says 'nothing was written to r for 1 s; gave up .*'
check "nothing written: no process is left" gone
run supervise --backoff 0.01 --run r --restarts 0 --timeout 1 -- sh -c "trap 'exit 0' TERM; while :; do sleep 0.02; done"
check "nothing written, exit code 0 when it is ended: exit code 3" exits 3
run supervise --backoff 0.01 --run r --restarts 0 --grace 0.2 -- sh -c "(exit 3) & exec sleep $mark"
check "a process failed: exit code 3" exits 3
check "a process failed: why" says 'a process failed, and nothing was written to r for 0.2 s; gave up .*'
check "a process failed: no process is left" gone
run supervise --backoff 0.01 --run r --grace 0.2 -- sh -c "setsid sh -c \"trap '' TERM; sleep $mark; sleep $mark\" & exit 0"
check "the command leaves processes: exit code 0" exits 0
check "the command leaves processes: they are gone before supervise" test "$(left; echo $?)" = 1

# --- signals ---

for signal in INT TERM USR1; do
    rm -f up
    start --run r -- sh -c "trap 'echo USR1 >got; exit 130' USR1; echo >up; while :; do sleep 0.02; done"
    until_file up
    kill -s "$signal" "$process"
    finished
    check "SIG$signal: exit code 130" exits 130
    check "SIG$signal: reaches the command as SIGUSR1" test "$(cat got)" = USR1
    check "SIG$signal: no restart" test -z "$(grep restart "$err")"
    rm -f got
done
rm -f up
start --run r --grace 0.2 -- sh -c "trap '' USR1 TERM; setsid sleep $mark & echo >up; sleep $mark; sleep $mark"
until_file up
kill -INT "$process"
kill -TERM "$process"
finished
check "a second signal: exit code 130" exits 130
check "a second signal: no process is left" gone

# --- supervise itself is killed ---

rm -f up
start --run r --grace 0.2 -- sh -c "trap '' TERM; setsid sleep $mark & echo >up; exec sleep $mark"
until_file up
kill -KILL "$process"
finished
check "supervise is killed: no process is left" gone
for signal in KILL TERM; do
    rm -f up
    start --run r --grace 0.2 -- sh -c "setsid sh -c \"trap '' TERM; sleep $mark; sleep $mark\" & (sleep $mark; sleep $mark) & echo >up; exec sleep $mark"
    until_file up
    kill -s $signal "$(pgrep -P "$process")"
    finished
    check "the watcher gets SIG$signal: exit code 1" exits 1
    check "the watcher gets SIG$signal: told" says 'the process that watched the command was killed, and the command with it'
    check "the watcher gets SIG$signal: no process is left" test "$(left; echo $?)" = 1
    pkill -KILL -f "^sleep $mark"
done

# --- without /proc ---

hidden() { LD_LIBRARY_PATH=$libraries unshare -m sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"; }
if hidden "$program" --version >/dev/null 2>&1; then # needs privileges, and no sanitizer, which would read /proc
    hidden "$program" supervise --run r -- sh -c 'exit 0' >"$out" 2>"$err" </dev/null
    code=$?
    check "without /proc: exit code 0" exits 0
    check "without /proc: says so" says '/proc is missing: processes that the command leaves running are neither found nor ended'
    hidden "$program" supervise --run r --restarts 0 --timeout 1 --grace 0.2 -- sh -c "trap '' TERM; sleep $mark; sleep $mark" >"$out" 2>"$err" </dev/null
    code=$?
    check "without /proc, nothing written: exit code 3" exits 3
    check "without /proc: no process of the command's group is left" gone
    hidden "$program" supervise --run r --grace 0.2 -- sh -c "setsid sleep $mark & exit 0" >"$out" 2>"$err" </dev/null
    code=$?
    check "without /proc: waits for nothing that it cannot find" exits 0
    pkill -KILL -f "^sleep $mark"
else
    echo "skipped: without /proc"
fi

# --- a training that is killed after some of its steps, twice ---

words="gpt2:layers=2,width=64,heads=2,seq=64 --data $work/files/text.txt --batch 32 --chunks 4 --steps 12 --save-every 1 --validation 0"
cat >kills.sh <<'EOF'
CGP_FAULT=delay:0F0:0.2 "$@" &
process=$!
steps() { cat "a killed run/metrics.jsonl" 2>/dev/null | wc -l; }
until=$(($(steps) + 4))
while [ $until -lt 12 ] && [ "$(steps)" -lt $until ] && kill -0 $process; do sleep 0.01; done
[ $until -ge 12 ] || kill -KILL $process
wait $process
EOF
run train $words --run straight
whole=$(grep ^weights_sha256 "$out")
run supervise --backoff 0.01 -- bash kills.sh "$program" train $words --resume --run "a killed run"
check "a killed training: exit code 0" exits 0
check "a killed training: goes on from a checkpoint" grep -q ' exit code 137; restart 1 of 3 from step [1-9]' "$err"
check "a killed training: the weights of one that was not" test "$(grep ^weights_sha256 "$out")" = "$whole"

pkill -KILL -f "^sleep $mark" # in case a check failed
finish
