#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_agree.sh SOURCE_DIR BUILD_DIR -- tests what MPI processes agree on when they start. They
# agree on the lowest instruction set, the results of libm, the memory of all ranks on a host, the
# offsets of clocks, and the run to resume.
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
needs_mpi "$build_dir"
needs_open_mpi
export TERM=dumb
unset CGP_CPU_ISA

seq 400 >"$work/text.txt"
model="gpt2:layers=2,width=32,heads=2,vocab=256,seq=32"
train="train $model --data $work/text.txt --batch 8 --chunks 4 --seed 3 --stages 2"

# --- the lowest instruction set ---

# shellcheck disable=SC2086 # split into words
{
    CGP_CPU_ISA=v3 "$cgpipe" $train --steps 3 --run "$work/alone" >"$work/out-alone" 2>&1
    CGP_LOG=info run_ranks 1 "$cgpipe" $train --steps 3 --run "$work/run" --json "$work/report.json" : \
        -n 1 -x CGP_CPU_ISA=v3 "$cgpipe" $train --steps 3 --run "$work/run" >"$work/out" 2>"$work/err"
}
check "one rank has v3: ends well" [ $? = 0 ]
check "one rank has v3: the weights of one process with v3" \
    [ "$(grep ^weights_sha256 "$work/out-alone")" = "$(grep ^weights_sha256 "$work/out")" ]
check "one rank has v3: it is printed" grep -q '^ranks  *2 over mpi, instruction set v3, libm [0-9a-f]\{16\}$' "$work/out"
check "one rank has v3: both are on a line" grep -q "^  *ranks 0-1 on $(hostname): devices 0-1, cores [0-9,-]*\$" "$work/out"
check "one rank has v3: both use kernels for v3" [ "$(grep -c 'kernels for x86-64-v3$' "$work/err")" = 2 ]
check "the report has it" [ "$(jq -c '[.ranks, .transport, .isa, ([.devices[].rank]), ([.devices[].host] | unique)]' "$work/report.json")" = \
    "[2,\"mpi\",\"v3\",[0,1],[\"$(hostname)\"]]" ]
check "the record has it" [ "$(jq -r '.versions.isa + .versions.libm' "$work/run/run.json")" = "v3$(jq -r .libm "$work/report.json")" ]
"$cgpipe" train --resume --run "$work/run" --steps 4 --json "$work/four.json" >"$work/out" 2>&1
now=$(jq -r .isa "$work/four.json")
check "one rank has v3: the other one logs that it steps down" [ "$now" = v3 -o \
    "$(grep -c "rank 0: kernels for v3, though this host has $now: rank 1, on host " "$work/err")" = 1 ]
check "a report of one process" [ "$(jq -c '[.ranks, .transport]' "$work/four.json")" = '[1,"inproc"]' ]
check "a resume with another instruction set warns" [ "$now" = v3 -o \
    "$(grep -c "^warning  *instruction set: v3 before, $now now: " "$work/out")" = 1 ]
CGP_CPU_ISA=$now "$cgpipe" train --resume --run "$work/run" --steps 5 >"$work/out" 2>&1
check "a resume with the same one does not" [ "$(grep -c '^warning' "$work/out")" = 0 ]

# --- results of libm ---

# glibc has several versions of its math functions; the versions without FMA give results that
# differ in the last bit.
plain=GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4
env $plain "$cgpipe" train --resume --run "$work/run" --steps 6 --json "$work/plain.json" >"$work/out" 2>&1
if [ "$(jq .libm "$work/plain.json")" != "$(jq .libm "$work/report.json")" ]; then
    check "a resume with another libm warns" grep -q '^warning  *results of libm: [0-9a-f]\{16\} before, [0-9a-f]\{16\} now: ' "$work/out"
    # shellcheck disable=SC2086 # split into words
    run_ranks 1 "$cgpipe" $train --run "$work/none" : -n 1 -x $plain "$cgpipe" $train --run "$work/none" >"$work/out" 2>"$work/err"
    check "ranks with another libm: fail" [ $? != 0 ]
    check "ranks with another libm: the message has the reason, once" [ "$(grep -c "^cgpipe: .*libm: expected the same results on all ranks" "$work/err")" = 1 ]
    check "ranks with another libm: nothing is left" [ ! -e "$work/none" ]
else
    echo "skip: another libm (the C library has one variant)"
fi

# --- memory of a host ---

# Each rank alone fits into the host's memory, but the two ranks together do not. A layer has 12 *
# width^2 parameters, and each parameter takes 16 bytes. A rank has one layer and a little more.
bytes=$(awk '/MemAvailable/ { print 1024 * $2 }' /proc/meminfo)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null)
case $limit in '' | max) ;; *) bytes=$(awk -v a="$bytes" -v b="$((limit - $(cat /sys/fs/cgroup/memory.current)))" 'BEGIN { print a < b ? a : b }') ;; esac
width=$(awk -v bytes="$bytes" 'BEGIN { print 8 * int(sqrt(0.7 * bytes / (16 * 12)) / 8) }')
gpt2="width=$width,heads=8,vocab=256,seq=8 --batch 1 --chunks 1"
# shellcheck disable=SC2086 # split into words
{
    "$cgpipe" plan gpt2:layers=1,$gpt2 >"$work/out-alone" 2>&1
    run_ranks 2 "$cgpipe" bench gpt2:layers=2,$gpt2 --stages 2 --steps 1 >"$work/out" 2>"$work/err"
}
check "ranks that do not fit together: fail" [ $? != 0 ]
check "ranks that do not fit together: each fits alone" grep -q '^fits this machine now' "$work/out-alone"
check "ranks that do not fit together: one message" [ "$(grep -c '^cgpipe: ' "$work/err")" = 1 ]
check "ranks that do not fit together: the message has the reason" grep -q "^cgpipe: memory: host $(hostname) has .* available, but its ranks together need .* (.*; or more hosts)" "$work/err"
[ $failed = 0 ] || head -30 "$work/err"

# --- clocks ---

if unshare --time --fork --monotonic 86400 true 2>/dev/null; then
    traced="$train --steps 3 --run $work/clocks --trace $work/trace.json"
    # shellcheck disable=SC2086 # split into words
    run_ranks 1 "$cgpipe" $traced : -n 1 unshare --time --fork --monotonic 86400 "$cgpipe" $traced >"$work/out" 2>"$work/err"
    check "a clock that is a day ahead: ends well" [ $? = 0 ]
    check "a clock that is a day ahead: aligned to less than a second" jq -e '.cgpipe.clock_uncertainty_seconds | . > 0 and . < 1' "$work/trace.json"
    check "a clock that is a day ahead: F of stage 0 ends before that of stage 1 begins" jq -e '
        def slice($name): .traceEvents[] | select(.ph == "X" and .name == $name);
        (slice("0F0") | .ts + .dur) <= (slice("1F0") | .ts) + 1e6 * .cgpipe.clock_uncertainty_seconds and
        (slice("1B3") | .ts + .dur) <= (slice("0B3") | .ts) + 1e6 * .cgpipe.clock_uncertainty_seconds' "$work/trace.json"
    check "a clock that is a day ahead: a step is short" jq -e '[.cgpipe.end_seconds[][]] | max < 60' "$work/trace.json"
    check "a clock that is a day ahead: it is printed" grep -q '^trace .* (clocks of hosts aligned to .* us)$' "$work/out"
    [ $failed = 0 ] || tail -n 30 "$work/out" "$work/err"
else
    echo "skip: a clock that is a day ahead (no time namespaces)"
fi

# --- the run to resume: rank 0 finds it ---
#
# Only rank 0 looks for the run to resume, because a shared file system may show an older state to
# rank 1.

resume() { # STEPS VARIABLE=VALUE... : the variables are set on rank 1
    local steps=$1 variables=()
    shift
    for variable in "$@"; do variables+=(-x "$variable"); done
    # shellcheck disable=SC2086 # split into words
    run_ranks 1 "$cgpipe" $train --resume --run "$work/late" --steps "$steps" : \
        -n 1 "${variables[@]}" -x LD_PRELOAD="$build_dir/tests/libfail_calls.so" "$cgpipe" $train --resume --run "$work/late" --steps "$steps" >"$work/out" 2>"$work/err"
}
if [ -z "$(cached "$build_dir" CGP_SANITIZE)" ]; then
    # shellcheck disable=SC2086 # split into words
    run_ranks 2 "$cgpipe" $train --steps 1 --run "$work/late" >"$work/out" 2>&1
    resume 2 FAIL_BELOW="$work/late/run.json" FAIL_CALL=open:1:EIO
    check "rank 1 cannot read run.json: resumed" [ "$?$(grep -c '^resumed' "$work/out")" = 01 ]
    resume 3 FAIL_BELOW="$work/late" FAIL_REPORT="$work/calls"
    check "rank 1 does not look for checkpoints: resumed" [ "$?$(grep -c '^resumed' "$work/out")" = 01 ]
    check "rank 1 does not look for checkpoints" grep -q '^count list 0$' "$work/calls"
fi
exit $failed
