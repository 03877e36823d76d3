#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_mpi_faults.sh SOURCE_DIR BUILD_DIR -- kill or stop ranks, and damage, delay or duplicate
# messages. The other ranks end in time with code 3, the message names the failed rank, and the run
# can be resumed. (campaign.sh injects such faults at random.)
set -u
build_dir=$2
cgpipe=$build_dir/cgpipe
# shellcheck source=tests/mpi/mpirun.sh
. "$(dirname "$0")/mpirun.sh"
# shellcheck source=tests/mpi/faults.sh
. "$(dirname "$0")/faults.sh"
needs_mpi "$build_dir"
needs_open_mpi
export TERM=dumb

sha_of() { grep '^weights_sha' "$1"; }

make_text
gpt2="gpt2:layers=4,width=32,heads=2,vocab=256,seq=32 --data $work/text.txt --batch 8 --chunks 4 --seed 3 --steps 6"
injure() { # RANKS FAULT OPTION...
    local n=$1 fault=$2
    shift 2
    # shellcheck disable=SC2086 # split into words
    run_fault "$n" "$fault" "$cgpipe" train $gpt2 --stages "$n" --run "$work/run" --overwrite --timeout 1 "$@" >"$work/out" 2>"$work/err"
}
# shellcheck disable=SC2086 # split into words
"$cgpipe" train $gpt2 --run "$work/straight" >"$work/out-straight" 2>&1

launcher=--enable-recovery injure 3 kill:rank=1,at=1B2@3 --save-every 2
check "killed: the others have code 3" [ "$(code_of 0)$(code_of 1)$(code_of 2)" = 31373 ]
# On an idle machine the other ranks end 3 s after the kill. A rank that does not notice the failure
# would never end.
check "killed: they end in time" jq -en "[$(cut -d' ' -f2 "$work/codes/0"), $(cut -d' ' -f2 "$work/codes/2")] | max - $(cut -d' ' -f2 "$work/codes/1") < 40"
# Messages that rank 1 sent just before the kill may be lost too, so the named action may be an
# earlier one.
check "killed: it is named" grep -q '^silent 1 1\(B[12]\|F3\)$' <<<"$(failed_rank_of "$work/run")"
check "killed: no process is left" [ -z "$(pgrep -f "$work/run")" ]
"$cgpipe" train --resume --run "$work/run" --stages 2 >"$work/out" 2>"$work/err"
check "killed: resumed, the weights of a run that was not disturbed" [ "$(sha_of "$work/out")" = "$(sha_of "$work/out-straight")" ]
check "a start deletes the files" [ ! -e "$work/run/diagnosis" ]

injure 2 stop:0F3@3
check "stopped: code 3" [ $? = 3 ]
check "stopped: it is named by rank 1, once" [ "$(grep -c '^cgpipe: rank 0: silent for [0-9.]* s' "$work/err")" = 1 ]
check "stopped: the file names it, too" grep -q '^silent 0 0F[23]$' <<<"$(failed_rank_of "$work/run")"
check "stopped: no process is left" [ -z "$(pgrep -f "$work/run")" ]

# Rank 1 hangs while it writes its diagnosis file. Therefore another thread must end rank 1.
launcher="-x LD_PRELOAD=$(find "$build_dir/tests" -maxdepth 1 -name libfail_calls.so) -x FAIL_BELOW=$work/run/diagnosis -x FAIL_CALL=create:1:HANG" injure 2 stop:0F3@3
check "stopped, and the other rank hangs: code 3" [ $? = 3 ]
check "stopped, and the other rank hangs: it is named, once" [ "$(grep -c '^cgpipe: rank 0: silent for [0-9.]* s (' "$work/err")" = 1 ]

launcher=--enable-recovery injure 3 kill:1F0@3,delay:0F1@3:0.2,kill:0F2@3
check "two killed: code 3" [ "$(code_of 2)" = 3 ]
check "two killed: rank 2 names one, once" [ "$(grep -c '^cgpipe: rank [01]: silent for [0-9.]* s' "$work/err")" = 1 ]
check "two killed: the file names it, too" grep -q '^silent [01] ' <<<"$(failed_rank_of "$work/run")"

rm -rf "$work/run/diagnosis"
: >"$work/run/diagnosis"
injure 2 corrupt:0SEND_F2@3 --verify-messages
check "damaged: code 3" [ $? = 3 ]
check "damaged: the message is named" grep -q 'the message of micro-batch 2 from rank 0 to rank 1, .* bytes, was damaged' "$work/err"
check "damaged: a diagnosis that cannot be written is a warning" grep -q '^cgpipe: warning: .*/run/diagnosis: expected the directory of the ranks. files, got another file (move it away)$' "$work/err"
rm -f "$work/run/diagnosis"

# Create links in the diagnosis directory while a rank hangs. The targets of the links stay
# unchanged, and no rank fails because of them.
rm -r "$work/run"
echo "years of work" >"$work/precious"
injure 2 stall:0F1@3 --timeout 3 &
injured=$!
for _ in $(seq 1000); do
    grep -qs '"step":3,' "$work/run/metrics.jsonl" && break
    sleep 0.02
done
mkdir -p "$work/run/diagnosis"
ln -sf "$work/precious" "$work/run/diagnosis/rank-0.json"
ln -sfn "$work" "$work/run/diagnosis/rank-1.json"
wait "$injured"
check "links in diagnosis: the run ends as a hang does" grep -q '^cgpipe: .*0F1: did not end for .*(timeout)' "$work/err"
check "links in diagnosis: their targets are as they were" grep -qx "years of work" "$work/precious"
check "links in diagnosis: a warning" grep -q "^cgpipe: warning: .*/run/diagnosis/rank-0.json: is a link" "$work/err"
# shellcheck disable=SC2086 # split into words
"$cgpipe" train $gpt2 --run "$work/run" --overwrite >"$work/out" 2>"$work/err"
check "links in diagnosis: the next start deletes them" [ ! -e "$work/run/diagnosis" ]
check "links in diagnosis: and nothing else" grep -qx "years of work" "$work/precious"

injure 2 twice:0SEND_F2@3,late:1SEND_B0@2:5.2 --verify-messages --timeout 6
check "twice, late: the run goes on" [ $? = 0 ]
check "twice, late: printed once each" [ "$(grep -c '\[pipeline\] CGP_FAULT: twice:0SEND_F2@3' "$work/err")$(grep -c '\[pipeline\] CGP_FAULT: late:1SEND_B0@2:5.2' "$work/err")" = 11 ]
check "twice, late: noted" [ "$(jq -r '.starts[-1].fault' "$work/run/run.json")" = twice:0SEND_F2@3,late:1SEND_B0@2:5.2 ]
check "twice, late: the same weights" [ "$(sha_of "$work/out")" = "$(sha_of "$work/out-straight")" ]
check "late: the message is named" [ "$(failed_rank_of "$work/run")" = "lost 1 1B0" ]
exit $failed
