#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_vanish.sh SOURCE_DIR BUILD_DIR -- a host vanishes in mid-step. (A host is a network
# namespace of this machine; see hosts.sh.) Either the host's network goes down, or all processes of
# the host are killed, including mpirun's daemon. The other ranks end within the time limit
# (--timeout) plus 2 s, and the run can be resumed.
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/hosts.sh
. "$(dirname "$0")/hosts.sh"
enter_namespaces "$0" "$@"
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
export TERM=dumb
timeout=2

make_hosts 2
make_text

# vanish NAME COMMAND... : train, run COMMAND in the third step or later, and wait until all ranks
# have ended.
vanish() {
    local name=$1 began
    shift
    rm -rf "$work/run"
    run_on_hosts 2 "$cgpipe" train gpt2:layers=4,width=32,heads=2,vocab=256,seq=32 --data "$work/text.txt" --batch 8 --chunks 4 \
        --stages 2 --steps 1000000 --interval 1 --save-every 2 --timeout $timeout --run "$work/run" >"$work/out" 2>"$work/err" &
    local runner=$!
    for _ in $(seq 1200); do
        grep -q '^step .*3/' "$work/out" && break
        sleep 0.1
    done
    check "$name: the run has begun" grep -q '^step .*3/' "$work/out"
    began=$EPOCHREALTIME
    "$@"
    for _ in $(seq 800); do
        pgrep -f "^$cgpipe train" >"$work/living" || break
        sleep 0.05
    done
    # On an idle machine the ranks end 2 s after the limit. A rank that does not notice the failure
    # would never end.
    check "$name: every rank ended in time" awk "BEGIN { exit !($EPOCHREALTIME - $began < $timeout + 30) }"
    ip -n host2 link set eth0 up # mpirun waits for its daemon on host2
    # shellcheck disable=SC2046 # process numbers
    kill -9 $(ip netns pids host2) $(cat "$work/living") 2>"$work/gone"
    wait $runner
    check "$name: mpirun fails" [ $? != 0 ]
    "$cgpipe" train --resume --run "$work/run" --steps 3 >"$work/out" 2>&1
    check "$name: the run can be resumed" grep -q 'the run has all its\|^resumed' "$work/out"
    [ $failed = 0 ] || cat "$work/err"
}

# shellcheck disable=SC2317 # vanish calls them
unplug() { ip -n host2 link set eth0 down; }
# shellcheck disable=SC2317,SC2046 # vanish calls it; process numbers
kill_all() { kill -9 $(ip netns pids host2); }
vanish "killed" kill_all
vanish "unplugged" unplug
exit $failed
