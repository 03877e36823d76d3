#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_replay.sh SOURCE_DIR BUILD_DIR -- replays of steps on MPI processes. The stages of a
# process are replayed in another process. Clean steps are equal, and keep the digests of one
# process. A flipped bit and a message that arrives damaged end all processes with code 6, and are
# named.
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
export TERM=dumb

seq 400 >"$work/text.txt"
model="gpt2:layers=3,width=32,heads=2,vocab=256,seq=32"
train="train $model --data $work/text.txt --batch 8 --chunks 4 --seed 3 --steps 6 --quiet --digest-every 1"

# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" $train --stages 2 --run "$work/one" >"$work/out" 2>"$work/err"
    check "one process: trained" [ $? = 0 ]
    run_ranks 2 "$cgpipe" $train --stages 4 --replay-every 1 --run "$work/two" >"$work/out" 2>"$work/err"
    check "two processes: trained" [ $? = 0 ]
    check "two processes: the digests of one" cmp "$work/one/digests.bin" "$work/two/digests.bin"
    run_ranks 3 "$cgpipe" $train --stages 3 --schedule zb-h1 --replay-every 2 --replay-on 2,0,1 --run "$work/three" >"$work/out" 2>"$work/err"
    check "three processes: trained" [ $? = 0 ]
    check "three processes: the digests of one" cmp "$work/one/digests.bin" "$work/three/digests.bin"

    for case in "flip:1F2@3:5 (stage 1, .*): device cpu:1 on host $(hostname) was wrong, in the step" \
        "flip:replay=1,at=1F2@3:5 (stage 1, .*): device cpu:0 on host $(hostname) was wrong, in the replay" \
        "flip:0U@3:5 (update of .*): device cpu:0 on host $(hostname) was wrong, in the step" \
        "corrupt:0SEND_F1@3 (micro-batch 1, message from stage 0 as stage 1 received it): the message from device cpu:0 to device cpu:1 on host $(hostname) arrived wrong, in the step"; do
        fault=${case%% *}
        rm -rf "$work/bad"
        CGP_FAULT=$fault run_ranks 2 "$cgpipe" $train --stages 2 --replay-every 1 --save-every 2 --run "$work/bad" >"$work/out" 2>"$work/err"
        check "$fault: code 6" [ $? = 6 ]
        check "$fault: named" grep -q "^cgpipe: replay: step 4 differs from its replay ${case#* }\$" "$work/err"
        check "$fault: the earlier checkpoint is the last" [ "$(readlink "$work/bad/latest")" = step-00000002 ]
    done

    run_ranks 2 "$cgpipe" $train --stages 3 --replay-every 1 --run "$work/none" >"$work/out" 2>"$work/err"
    check "3 devices in 2 processes: refused" [ $? = 2 ]
    check "3 devices in 2 processes: the reason" grep -q "^cgpipe: replay: expected equally many devices in each process, got 3 devices in 2 processes$" "$work/err"
    check "3 devices in 2 processes: nothing is left" [ ! -e "$work/none" ]
}
exit "$failed"
