#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_hosts.sh SOURCE_DIR BUILD_DIR -- results of ranks on 2 and 4 hosts are bit-equal to the
# results of one process. The hosts are network namespaces of this machine (hosts.sh). `cgpipe bench
# transport` measures the rate of a network and the delay of messages. The number of draws is 0.05 x
# CGP_TEST_SCALE times the number in test_bit_equality. CGP_TEST_SEED sets the seed, to repeat
# draws.
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

make_hosts 4 400mbit

# --- the same bits ---

export CGP_TEST_SEED=${CGP_TEST_SEED:-$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')}
echo "CGP_TEST_SEED=$CGP_TEST_SEED"
# shellcheck disable=SC2317 # check calls it
passed_on() { # HOSTS RANKS
    # shellcheck disable=SC2154 # mpirun.sh sets it
    n_hosts=$1 CGP_PLUGIN_PATH=$plugins CGP_TEST_TRANSPORT=mpi CGP_TEST_SCALE=$(scale 0.05) \
        run_on_hosts "$2" "$build_dir/tests/test_bit_equality" >"$work/log" 2>&1
    [ "$(grep -c '^\[  PASSED  \] 4 test(s).$' "$work/log")" = "$2" ] || { tail -40 "$work/log"; return 1; }
}
check "draws on 4 hosts" passed_on 4 4

make_text
gpt2="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32,tied=1 --data $work/text.txt --batch 8 --chunks 4 --seed 3 --steps 4 --stages 4"
# shellcheck disable=SC2086 # split into words
weights_of() { # HOSTS RANKS OPTION...
    local n_hosts=$1 ranks=$2
    shift 2
    run_on_hosts "$ranks" "$cgpipe" train $gpt2 --overwrite --run "$work/ranks" "$@" 2>&1 | grep '^weights_sha256'
}
# shellcheck disable=SC2086 # split into words
one=$("$cgpipe" train $gpt2 --run "$work/one" | grep '^weights_sha256')
check "one process trains" [ -n "$one" ]
check "4 ranks on 4 hosts train the same" [ "$(weights_of 4 4)" = "$one" ]
check "4 ranks on 2 hosts, with messages 0.2 ms late, another schedule" \
    [ "$(CGP_MPI_DELAY=0.0002 weights_of 2 4 --schedule zb-h1)" = "$one" ]

# --- a rate, a delay ---

n_hosts=2
CGP_MPI_DELAY=0.001 run_on_hosts 2 "$cgpipe" bench transport --json "$work/cluster.json" >"$work/out" 2>&1
cat "$work/out"
check "a cluster file of two hosts, both links" [ "$(jq -c '[[.hosts[].name], [.devices[].host], [.links[] | .from, .to]]' "$work/cluster.json")" = \
    '[["host1","host2"],[0,1],[0,1,1,0]]' ]
check "400 Mbit/s are about 50 MB/s, or less where others compute" jq -e '[.links[].bytes_per_second | . > 2e6 and . < 60e6] | all' "$work/cluster.json"
check "messages come after the delay of 1 ms" jq -e '[.links[].latency_seconds | . >= 0.001] | all' "$work/cluster.json"
check "within a host nothing is slow" jq -e '[.hosts[].bytes_per_second | . > 60e6] | all' "$work/cluster.json"
CGP_MPI_DELAY=soon timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$cgpipe" bench transport --transport mpi >"$work/out" 2>&1
check "a delay that is none is refused" grep -q 'CGP_MPI_DELAY: expected 0 to 10 seconds, got "soon"' "$work/out"
exit $failed
