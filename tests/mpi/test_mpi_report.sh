#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_report.sh SOURCE_DIR BUILD_DIR -- a training in MPI processes writes the report of its
# run on rank 0. The report has the host and the rank of each device, and names a slow link. With
# replicas, it has a step of the first replica.
set -u
source_dir=$1 build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
export TERM=dumb

page() { # NAME RUN : make page and JSON of a run, and check them
    "$cgpipe" report "$work/$2" --out "$work/page.html" --json "$work/page.json" >"$work/out" 2>"$work/err"
    check "$1: the report" [ $? = 0 ]
    check "$1: the page" python3 "$source_dir/tests/cli/report_page.py" page "$work/page.html" "$work/page.json" \
        curves timeline memory balance planner facts
}

make_text
words="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32 --data $work/text.txt --batch 8 --chunks 4 --steps 5"

# A message takes 100 ms, and an action less than 1 ms, so the link is slow on any machine.
# shellcheck disable=SC2086 # split into words
CGP_MPI_DELAY=0.1 run_ranks 2 "$cgpipe" train $words --run "$work/slow" >"$work/out" 2>"$work/err"
check "two ranks: ends well" [ $? = 0 ]
check "two ranks: the last line" [ "$(tail -n 1 "$work/out")" = "report       $work/slow/report.html" ]
check "two ranks: nothing on standard error" [ ! -s "$work/err" ]
page "two ranks" slow
check "two ranks: a rank and a host for each device" \
    jq -e '.facts.places | map(.rank) == [0, 1] and all(.[]; .host != null)' "$work/page.json"
check "two ranks: messages are slow" \
    jq -e 'any(.changes[]; (.kind == "link" or .kind == "cores") and (.text | test("a message from device . to device .")))' "$work/page.json"

# shellcheck disable=SC2086
run_ranks 2 "$cgpipe" train $words --replicas 2 --run "$work/replicas" >"$work/out" 2>"$work/err"
check "replicas: ends well" [ $? = 0 ]
page "replicas" replicas
check "replicas: the step of the first" jq -e '.timeline.step == 5 and .timeline.micro_batches == 2' "$work/page.json"
check "replicas: nothing is missing" jq -e '.missing == []' "$work/page.json"

# shellcheck disable=SC2086
run_ranks 2 "$cgpipe" train $words --replicas 2 --chunks 5 --batch 10 --gradient-groups 4 --run "$work/unequal" >"$work/out" 2>"$work/err"
check "unequal replicas: ends well" [ $? = 0 ]
"$cgpipe" report "$work/unequal" --json "$work/page.json" >"$work/out" 2>"$work/err"
check "unequal replicas: no timeline, told" jq -e '.missing[0] | test("timeline: .*unequal")' "$work/page.json"

# The last replica has a micro-batch of 3 samples only, so no full micro-batch is timed there.
# shellcheck disable=SC2086
run_ranks 2 "$cgpipe" train $words --replicas 2 --batch 7 --chunks 2 --gradient-groups 2 --run "$work/short" >"$work/out" 2>"$work/err"
check "a short last replica: ends well" [ $? = 0 ]
check "a short last replica: nothing on standard error" [ ! -s "$work/err" ]
check "a short last replica: a timeline, no costs" jq -e '.step == 5 and has("cgpipe") and (has("costs") | not)' "$work/short/measured.json"

run_ranks 2 "$cgpipe" report "$work/slow" --text >"$work/out" 2>"$work/err"
check "report: in one process only" grep -q 'report: runs in one process, got 2 (without mpirun or srun)' "$work/err"

exit $failed
