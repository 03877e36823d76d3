#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_locks.sh SOURCE_DIR BUILD_DIR -- two processes use one directory, on one host or two hosts.
# The file system may or may not have locks. Neither process changes files that the other process
# writes.
#
# fail_calls.c disables locks, sets the host name, and stops or kills a process in the middle of its
# work.
source "$(dirname "$0")/support.sh"
preload=$(find "$2/tests" -maxdepth 1 -name 'libfail_calls.so')

# background NAME SETTING.. -- WORDS.. : start the program in the background. The settings of
# fail_calls apply to the files of this test. $process is the program's pid.
background() {
    local name=$1 settings=()
    shift
    while [ "$1" != -- ]; do
        settings+=("$1")
        shift
    done
    shift
    env LD_PRELOAD="$preload" FAIL_BELOW="$work/files" "${settings[@]}" "$program" "$@" >"$work/$name-out" 2>"$work/$name-err" </dev/null &
    process=$!
}
finished() { # NAME PROCESS
    wait "$2" 2>/dev/null
    code=$?
    out=$work/$1-out err=$work/$1-err
}
here() { # SETTING.. -- WORDS.. : like background, but wait for the program
    background here "$@"
    finished here $process
}
until_stopped() { # PROCESS : wait until it is stopped, at most 30 s
    for _ in $(seq 1500); do
        case $(sed 's/.*) //' "/proc/$1/stat") in T*) return 0 ;; esac
        sleep 0.02
    done
    return 1
}
end_now() { # PROCESS
    kill -KILL "$1"
    wait "$1" 2>/dev/null
}
refused() { exits 1 && lines 1 "$err" && grep -q "^cgpipe: $1\$" "$err"; }
date='[0-9]*-[0-9]*-[0-9]*T[0-9]*:[0-9]*:[0-9]*Z'

words="$model --data $work/files/text.txt --batch 4 --chunks 2 --validation 0 --steps 6 --save-every 2"

# --- a directory of weights; a model ---

run convert "$source_dir/tests/data/weights/gpt2" gpt2-run
for settings in FAIL_HOST=elsewhere "FAIL_HOST=elsewhere FAIL_LOCKS=apart" "FAIL_HOST=elsewhere FAIL_LOCKS=none" FAIL_LOCKS=none; do
    where=${settings/FAIL_HOST=elsewhere/FAIL_HOST=here}
    background first $settings FAIL_CALL=sync:1:STOP -- convert gpt2-run weights
    first=$process
    until_stopped $first
    here $where -- convert gpt2-run weights
    check "$settings: a second conversion to the same directory" exits 0
    kill -CONT $first
    finished first $first
    check "$settings: the first one goes on" exits 0
    check "$settings: nothing is left" test "$(ls -A weights | tr '\n' ' ')" = "config.json model.safetensors "
    rm -rf weights
done

mkdir models && cd models || exit 1
background first FAIL_CALL=sync:1:STOP -- new model mine
first=$process
until_stopped $first
here -- train $words --steps 2 --run .
check "a training in the directory in which cgpipe new writes: exit code 0" exits 0
kill -CONT $first
finished first $first
check "cgpipe new goes on" exits 0
background first FAIL_CALL=sync:1:KILL -- new model killed
finished first $process
here -- new model next
check "cgpipe new deletes what a killed one left" test "$(ls -A | tr '\n' ' ')" = "latest measured.json metrics.jsonl mine next report.html run.json step-00000002 "
cd ..

# --- a run without locks ---

sha() { sed -n 's/^weights_sha256 //p' "$out"; }
run train $words --run straight
whole=$(sha)
left() { ls -A "$1" | tr '\n' ' '; }
entries=$(left straight)

background first FAIL_LOCKS=none FAIL_CALL=sync:9:STOP -- train $words --resume --run run
first=$process
until_stopped $first
here FAIL_LOCKS=none -- train $words --resume --run run
check "without locks: a second training is refused" refused \
    "run directory run: another cgpipe train is at work in it, process $first of this host, since $date (stop that one, or another --run)"
here -- train $words --resume --run run
check "with locks here and without there: likewise" refused "run directory run: another cgpipe train is at work in it, process $first .*"
here FAIL_LOCKS=none -- convert weights run --overwrite
here FAIL_LOCKS=none -- stop run
check "without locks: a stop request reaches it" has "stop         requested: the training in run will save and end after its next step" "$out"
kill -CONT $first
finished first $first
check "without locks: it stops" exits 130
here FAIL_LOCKS=none -- stop run
check "without locks: it is not known if one trains there" has \
    "whether a training runs in run is unknown: its file system has no locks, or another host has the lock" "$out"
here FAIL_LOCKS=none -- train $words --resume --run run
check "without locks: the run goes on to the same weights" test "$(sha)" = "$whole"
check "without locks: no lock is left" test "$(left run)" = "$entries"

# --- a lock whose process was killed ---

killed() { # SETTING.. : train in a new run; kill the training in a save, so that its lock remains
    rm -rf run
    background first "$@" FAIL_CALL=sync:9:STOP -- train $words --resume --run run
    first=$process
    until_stopped $first
    end_now $first
}
goes_on() { # NAME
    check "$1: the next one takes the lock over" exits 0
    check "$1: to the same weights" test "$(sha)" = "$whole"
    check "$1: nothing is left" test "$(left run)" = "$entries"
}
killed FAIL_LOCKS=none
check "a killed training leaves its lock" test -f run/lock
here FAIL_LOCKS=none -- train $words --resume --run run
goes_on "killed"
killed FAIL_LOCKS=none
here -- train $words --resume --run run
goes_on "killed, with locks now"
for pid in $$ 1; do # living processes with another start time
    killed FAIL_LOCKS=none
    sed -i "s/-$first-/-$pid-/; s/ $first / $pid /" run/lock
    here FAIL_LOCKS=none -- train $words --resume --run run
    goes_on "another process has its pid"
done

# Two processes take over the lock of a dead process at once. One of the two stops or dies between
# the two system calls of the takeover.
killed FAIL_LOCKS=none
background second FAIL_LOCKS=none FAIL_CALL=rename:2:STOP -- train $words --resume --run run
second=$process
until_stopped $second
check "amid taking it over: the lock of the dead one is gone" test ! -e run/lock
here FAIL_LOCKS=none -- train $words --resume --run run
check "amid taking it over: another one is first" exits 0
kill -CONT $second
finished second $second
check "amid taking it over: it is refused after that one" refused "run/run.json: another cgpipe train has changed it meanwhile (start again)"
check "amid taking it over: no lock is left" test "$(left run)" = "$entries"
killed FAIL_LOCKS=none
background second FAIL_LOCKS=none FAIL_CALL=unlink:1:STOP -- train $words --resume --run run
second=$process
until_stopped $second
here FAIL_LOCKS=none -- train $words --resume --run run
check "about to delete the lock of the dead one: another one is refused" refused "run directory run: another process takes over its lock (start again)"
end_now $second
here FAIL_LOCKS=none -- train $words --resume --run run
goes_on "killed in taking it over"

# --- another host ---

remedy() { sed -n 's/.*(if it has ended: \(.*\))$/\1/p; s/.*(if nothing trains there: \(.*\))$/\1/p' "$err"; }
for name in run "a user's run \$(date)"; do
    rm -rf "$name"
    background first FAIL_LOCKS=none FAIL_HOST=elsewhere FAIL_CALL=sync:9:STOP -- train $words --resume --run "$name"
    first=$process
    until_stopped $first
    here FAIL_LOCKS=none -- train $words --resume --run "$name"
    check "another host, $name: refused" refused \
        "run directory $name: process $first on host elsewhere has locked it since $date, and cannot be inspected from here (if it has ended: rm .*)"
    end_now $first
    here FAIL_LOCKS=none -- train $words --resume --run "$name"
    check "another host, $name: also when that one was killed" exits 1
    command=$(remedy)
    here -- stop "$name"
    check "another host, $name: a stop request may reach it" has "requested; whether a training runs" "$out"
    eval "$command"
    check "another host, $name: the command deletes the lock alone" test -e "$name/run.json" -a ! -e "$name/lock"
    here FAIL_LOCKS=none -- train $words --resume --run "$name"
    check "another host, $name: to the same weights" test "$(sha)" = "$whole"
    check "another host, $name: its temporary entries stay, with a warning" grep -q "/.cgpipe-.*elsewhere-.* stays: a process of another host" "$err"
done

# If a user deletes the lock of a living process, this process detects the deletion and ends. It
# changes no files of the lock's new owner.
rm -rf run
background first FAIL_LOCKS=none FAIL_CALL=flush:2:STOP -- train $words --resume --run run # stopped in the line of step 2
first=$process
until_stopped $first
rm run/lock
here FAIL_LOCKS=none -- train $words --overwrite --run run
kill -CONT $first
finished first $first
check "the lock of a training is deleted: it ends" refused \
    "run directory run: its lock file was deleted while this process had the lock, so another process may use it (start again when none does)"
check "the lock of a training is deleted: the run of the other one stays" test "$(left run)" = "$entries"

# --- another pid namespace ---

# apart NAME OPTION.. : train in a new pid namespace whose first process is a shell. Kill the
# training during a save, and resume the run outside the namespace.
apart() {
    local name=$1
    shift
    rm -rf run
    LD_PRELOAD=$preload FAIL_BELOW=$work/files FAIL_LOCKS=none FAIL_CALL=sync:9:KILL unshare --pid --fork "$@" \
        sh -c '"$@"; exit' sh "$program" train $words --resume --run run >"$out" 2>"$err" </dev/null
    here FAIL_LOCKS=none -- train $words --resume --run run
    check "$name: refused" refused "run directory run: process [0-9]* on host .* has locked it since $date, and cannot be inspected from here (if it has ended: rm run/lock)"
    eval "$(remedy)"
    here FAIL_LOCKS=none -- train $words --resume --run run
    check "$name: to the same weights" test "$(sha)" = "$whole"
    check "$name: its temporary entries stay" test "$(find run -maxdepth 1 -name ".cgpipe-*" | wc -l)" = 1
}
if unshare --pid --fork --mount-proc "$program" --version >/dev/null 2>&1; then
    apart "another pid namespace" --mount-proc
    apart "another pid namespace, without a /proc of its own"
    check "another pid namespace, without a /proc of its own: no place is known" test -n "$(find run -name '.cgpipe-*-unknown-unknown-*')"
else
    echo "skipped: no rights for a pid namespace"
fi

# --- a file of another kind with the lock's name ---

echo mine >"$work/mine"
for kind in "ln -s $work/mine" "mkdir" "mkfifo" "touch"; do
    rm -rf run
    cp -a straight run
    $kind run/lock
    here FAIL_LOCKS=none -- train --resume --run run
    check "$kind: refused" refused "run/lock: expected the lock file of a cgpipe train, got something else (if nothing trains there: rm -r run/lock)"
    check "$kind: it stays" test -e run/lock
    eval "$(remedy)"
    here FAIL_LOCKS=none -- train --resume --run run
    check "$kind: the command deletes it" exits 0
done
check "the target of a link stays" has mine "$work/mine"

# --- a file system without locks and without links ---

here FAIL_LOCKS=none FAIL_LINKS=1 -- train $words --run linkless
check "neither locks nor links: trains" exits 0
check "neither locks nor links: warns" has \
    "cgpipe: warning: run directory linkless: its file system has no locks and no links, so nothing keeps another cgpipe train out of it" "$err"
check "neither locks nor links: nothing is left" test "$(left linkless)" = "$entries"

finish
