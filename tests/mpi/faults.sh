# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# faults.sh -- functions for scripts that inject faults into ranks. run_fault runs ranks with a
# fault, and records how each rank ends. failed_rank_of finds the failed rank. Source this file
# after mpirun.sh.

# Run a command on N ranks with CGP_FAULT=FAULT, and return mpirun's exit code. Write each rank's
# exit code and end time, in seconds since the epoch, to $work/codes/RANK. $launcher has options of
# mpirun. With --enable-recovery, mpirun does not kill the other ranks after a failure. A rank that
# mpirun kills writes no such file.
run_fault() { # N FAULT COMMAND...
    local n=$1 fault=$2
    shift 2
    rm -rf "$work/codes"
    mkdir "$work/codes"
    # shellcheck disable=SC2086,SC2016,SC2154 # split words; variables of the rank; from mpirun.sh
    CGP_FAULT=$fault timeout $((300 * ${CGP_TEST_PATIENCE:-1})) "$mpirun" -n "$n" ${launcher:-} bash -c '
        trap "" TERM # mpirun sends SIGTERM to this shell too
        codes=$1
        shift
        env --default-signal=TERM "$@"
        code=$?
        echo "$code $(date +%s.%N)" >"$codes/$OMPI_COMM_WORLD_RANK"
        exit "$code"' rank "$work/codes" "$@"
}

code_of() { cut -d' ' -f1 "$work/codes/$1" 2>/dev/null; } # RANK

# Print the verdict, rank and action of a run's failure, such as "silent 2 2B1".
failed_rank_of() { # RUN
    "$cgpipe" diagnose "$1" --json "$work/failed_rank.json" >"$work/diagnose" 2>&1
    jq -r '"\(.verdict) \(.rank) \(.action)"' "$work/failed_rank.json"
}
