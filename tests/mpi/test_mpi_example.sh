#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_example.sh SOURCE_DIR BUILD_DIR -- examples/mpi_ranks.c, which calls MPI itself, gives
# the same losses and weights in 1, 2 and 4 processes.
set -u
build_dir=$2
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
failed=0
for n in 1 2 4; do
    run_ranks "$n" "$build_dir/example_mpi_ranks" >"$work/$n" 2>&1 || failed=1
    [ "$(grep -c '^weights [0-9a-f]\{64\}$' "$work/$n")$(grep -c '^step' "$work/$n")" = 14 ] || failed=1
    cmp "$work/1" "$work/$n" || failed=1
    cat "$work/$n"
done
exit $failed
