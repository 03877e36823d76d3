#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_bits.sh SOURCE_DIR BUILD_DIR -- run the draws of test_bit_equality on 2, 3 and 4 MPI
# processes. The results must be bit-equal to the results of one process. The draws cover all
# schedules, recompute modes, precisions, tied parameters, skips and states, on devices of the
# backends `cpu` and `late`. Messages of `late` are sent in small pieces. The number of draws is
# 0.12 x CGP_TEST_SCALE times the number for one process. CGP_TEST_SEED sets the seed, to repeat
# draws.
set -u
build_dir=$2
program=$build_dir/tests/test_bit_equality
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
CGP_TEST_SCALE=$(scale 0.12)
export CGP_PLUGIN_PATH=$plugins CGP_TEST_TRANSPORT=mpi CGP_TEST_SCALE
export CGP_TEST_SEED=${CGP_TEST_SEED:-$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')}
echo "CGP_TEST_SEED=$CGP_TEST_SEED"
failed=0
draws=0
for n in 2 3 4; do
    if CGP_PIECE_BYTES=$((64 * n)) run_ranks "$n" "$program" >"$work/log" 2>&1 && [ "$(grep -c '^\[  PASSED  \] 4 test(s).$' "$work/log")" = "$n" ]; then
        here=$(sed -n "s/^\([0-9]*\) draws on $n ranks\$/\1/p" "$work/log" | head -1)
        draws=$((draws + here))
        echo "ok: $n ranks, $here draws"
    else
        echo "not ok: $n ranks"
        tail -40 "$work/log"
        failed=1
    fi
done
[ "$draws" -ge 60 ] || { echo "not ok: expected 60 draws on ranks or more, got $draws"; failed=1; }
exit $failed
