# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# faults.sh -- for scripts that injure ranks: run_fault, what it notes, and the culprit. After
# mpirun.sh.

# Run a command on N ranks with CGP_FAULT=FAULT, and note in $work/codes/RANK each rank's exit code
# and when it ended, in seconds since the epoch; the launcher's own code is returned. $launcher:
# options of mpirun; --enable-recovery: it cleans nothing up. A rank that mpirun kills has no note.
run_fault() { # N FAULT COMMAND...
    local n=$1 fault=$2
    shift 2
    rm -rf "$work/codes"
    mkdir "$work/codes"
    # shellcheck disable=SC2086,SC2016,SC2154 # words; the ranks' variables; of mpirun.sh
    CGP_FAULT=$fault timeout 300 "$mpirun" -n "$n" ${launcher:-} bash -c '
        trap "" TERM # which mpirun sends to both
        codes=$1
        shift
        env --default-signal=TERM "$@"
        code=$?
        echo "$code $(date +%s.%N)" >"$codes/$OMPI_COMM_WORLD_RANK"
        exit "$code"' rank "$work/codes" "$@"
}

code_of() { cut -d' ' -f1 "$work/codes/$1" 2>/dev/null; } # RANK

# The culprit of a run: "silent 2 2B1".
culprit_of() { # RUN
    "$cgpipe" diagnose "$1" --json "$work/culprit.json" >"$work/diagnose" 2>&1
    jq -r '"\(.verdict) \(.rank) \(.action)"' "$work/culprit.json"
}
