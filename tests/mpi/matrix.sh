#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# matrix.sh [BUILD_DIR] -- run `cgpipe check` for four models in both precisions with every
# schedule. There are 2, 4 and 8 ranks, on one host or on 2 and 4 simulated hosts (hosts.sh). All
# results are bit-equal to the results of one process. The script runs nightly and by hand, and
# takes about 10 minutes.
set -u
build_dir=${1:-build}
# shellcheck source=tests/mpi/hosts.sh
. "$(dirname "$0")/hosts.sh"
enter_namespaces "$0" "$@"
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
cgpipe=$(cd "$build_dir" && pwd)/cgpipe
export TERM=dumb
same=0 failed=0
models=("gpt2:layers=6,width=32,heads=2,vocab=64,seq=16" resnet20 "unet:B=2,C=8,depth=3,image=32"
    "amoebanetd:L=3,D=32,image=64,classes=10")

check() { # HOSTS RANKS OPTION... : HOSTS is 0 for this machine without a network
    local hosts=$1 ranks=$2
    shift 2
    if [ "$hosts" = 0 ]; then run_ranks "$ranks" "$cgpipe" check "$@"; else n_hosts=$hosts run_on_hosts "$ranks" "$cgpipe" check "$@"; fi >"$work/log" 2>&1
    # shellcheck disable=SC2181 # $? is the exit code of either branch
    if [ $? = 0 ]; then
        same=$((same + 1))
    else
        failed=$((failed + 1))
        echo "not ok: hosts $hosts, ranks $ranks: check $*"
        tail -3 "$work/log"
    fi
}

check_schedules() { # HOSTS RANKS
    local precision model schedule virtual
    for precision in f32 bf16; do
        for model in "${models[@]}"; do
            for schedule in $schedules; do
                virtual=2
                case $schedule in gpipe | 1f1b | eager-1f1b | zb-h1 | zb-h2 | zb-1p | zb-2p) virtual=1 ;; esac
                [ $(($2 * virtual)) -le 8 ] || continue
                check "$1" "$2" "$model" --stages "$2" --virtual "$virtual" --schedule "$schedule" --batch 8 --chunks 8 --precision "$precision"
            done
        done
    done
    echo "hosts $1, ranks $2: $same the same so far"
}

schedules=$("$cgpipe" schedule --list | awk '/^[a-z0-9]/ && $1 != "forward-only" { print $1 }')
for ranks in 2 4 8; do check_schedules 0 "$ranks"; done
make_hosts 4
check_schedules 2 2
check_schedules 2 4
check_schedules 4 4
echo "$same of $((same + failed)) checks have the bits of one process"
[ "$failed" = 0 ] && [ "$same" -gt 0 ]
