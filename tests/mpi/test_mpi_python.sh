#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_python.sh SOURCE_DIR BUILD_DIR -- Python programs (python_ranks.py) give the same results
# in 1, 2 and 4 processes, and end together. Processes that would train alone by mistake are
# refused.
set -u
source_dir=$1
build_dir=$2
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
python=${CGP_PYTHON:-$(cached "$build_dir" CGP_PYTHON)}
if [ -n "$(cached "$build_dir" CGP_SANITIZE)" ] || ! "$python" -c 'import numpy' 2>/dev/null; then
    echo "skip: no Python with NumPy, or a sanitizer"
    exit 77
fi
export PYTHONPATH=$source_dir/python PYTHONDONTWRITEBYTECODE=1 CGPIPE_LIBRARY=$build_dir/libcgpipe.so
program=$source_dir/tests/mpi/python_ranks.py

# shellcheck disable=SC2317 # called by check
# Run the program in N processes. Each process writes its output to its own file, because mpirun may
# mix lines that processes print at the same time. The files are then joined to $work/out.
ranks_print() { # N WHAT
    rm -f "$work"/rank.*
    # shellcheck disable=SC2016 # each process expands these
    run_ranks "$1" sh -c 'exec "$@" >"$0.$$"' "$work/rank" "$python" "$program" "$2" 2>"$work/err"
    local status=$?
    cat "$work"/rank.* >"$work/out"
    return "$status"
}

# shellcheck disable=SC2317 # called by check
# Check that each of N ranks prints the same lines as a single process.
same() { # WHAT N
    "$python" "$program" "$1" >"$work/expected" 2>"$work/err" || return
    ranks_print "$2" "$1" || return
    [ "$(wc -l <"$work/out")" = $(("$2" * $(wc -l <"$work/expected"))) ] || return
    [ "$(sort -u "$work/out")" = "$(sort -u "$work/expected")" ]
}

# shellcheck disable=SC2317 # called by check
# Check that two processes with ranks=1 each train alone.
alone() {
    ranks_print 2 alone && [ "$(cut -d ' ' -f 1,2 "$work/out" | sort | uniq -c | tr -s ' ')" = " 2 0 1" ]
}

# shellcheck disable=SC2317 # called by check
# Check that the command fails with this text on standard error.
says() { # TEXT COMMAND...
    local text=$1
    shift
    ! timeout 120 "$@" >"$work/out" 2>"$work/err" && grep -qF "$text" "$work/err"
}

check "train in 2 processes" same train 2
check "train in 4 processes" same train 4
check "2 replicas" same replicas 2
check "2 replicas of 2 processes" same replicas 4
check "3 processes for 2 replicas" says "replicas: one process or a multiple of 2 is expected, got 3" \
    "$mpirun" -n 3 "$python" "$program" replicas
"$python" "$program" torch >"$work/out" 2>"$work/err"
if [ $? = 77 ]; then echo "skip: the captured module, no PyTorch"; else
    check "a captured module" same torch 2
    check "replicas of a captured module" same copies 2
fi
check "an exception ends all" says "PeerError: rank 1: RuntimeError: no more data" \
    "$mpirun" -n 2 "$python" "$program" fail
check "ranks=1: each alone" alone
check "more processes than devices" says "5 processes were started (stages=5" \
    "$mpirun" -n 5 "$python" "$program" train
check "torchrun" says "mpirun -n 2 python" env RANK=0 WORLD_SIZE=2 "$python" "$program" train
check "another MPI's launcher" says "the plan has 2, but MPI has 1 processes" \
    env OMPI_COMM_WORLD_SIZE=2 "$python" "$program" train
exit $failed
