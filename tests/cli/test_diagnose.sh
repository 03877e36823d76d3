#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_diagnose.sh SOURCE_DIR BUILD_DIR -- cgpipe diagnose finds the failed rank in the files that
# ranks wrote, and refuses other files. (test_mpi_faults tests the files of real faults, and
# test_fuzz_diagnosis tests damaged files.)
source "$(dirname "$0")/support.sh"

# Write the diagnosis file of one of three ranks. DEVICE is the state of the rank's device,
# {"state": ...}. HEARD has the age of each rank's last heartbeat.
file_of() { # RANK REASON DEVICE HEARD
    mkdir -p run/diagnosis
    jq -n --arg reason "$2" --argjson rank "$1" --argjson device "$3" --argjson heard "$4" '
        {format: "cgpipe diagnosis", version: 1, rank: $rank, ranks: 3, host: "a", process: (100 + $rank), time: 1700000000, timeout: 4,
         reason: $reason, devices: [{device: $rank} + $device], sent: [],
         known: [$heard[] | {heard: ., agreeing: null, ended: 7, agreements: 5, process: 1, host: "a", left: false}]}' \
        >"run/diagnosis/rank-$1.json"
}
waits() { # STAGE PEER MICROBATCH
    echo "{\"state\": \"waits\", \"action\": \"$1RECV_F$3\", \"stage\": $1, \"microbatch\": $3, \"seconds\": 4.5, \"edge\": $2, \"from_stage\": $2,
           \"to_stage\": $1, \"peer_rank\": $2, \"wants\": \"message\", \"peer_action\": \"$2F$3\", \"peer_index\": 3}"
}
runs='{"state": "runs", "action": "1B2", "stage": 1, "microbatch": 2, "seconds": 4.4, "layer": "h.1", "op": "linear"}'
verdict() { jq -r '"\(.verdict) \(.rank) \(.action) \(.chain | join(">")) \(.cycle)"' out.json; }
named() { # NAME VERDICT LINE
    run diagnose run --json out.json
    check "$1: exit code 0" exits 0
    check "$1: the verdict" test "$(verdict)" = "$2"
    check "$1: in words" has "$3" "$out"
    rm -r run
}

file_of 0 "rank 1: silent for 4.0 s (...)" '{"state": "idle"}' '[0, 4.1, 0.2]'
file_of 2 "rank 1: silent for 4.0 s (...)" "$(waits 2 1 5)" '[0.1, 4.0, 0]'
named "a silent rank" "silent 1 1F5 2>1 false" "failed rank  rank 1 (host a, process 1) left no file"

file_of 0 SIGTERM '{"state": "idle"}' '[0, 0.1, 0.2]'
file_of 1 SIGTERM '{"state": "idle"}' '[0.2, 0, 0.2]'
named "a rank that mpirun cleaned up behind" "silent 2 null  false" "failed rank  rank 2 (host a, process 1) left no file"

file_of 0 late "$(waits 0 1 2)" '[0, 0.1, 0.1]'
file_of 1 late "$runs" '[0.1, 0, 0.1]'
file_of 2 late "$(waits 2 1 2)" '[0.1, 0.1, 0]'
named "a slow device" "slow 1 1B2 0>1 false" "action       stage 1, micro-batch 2, 1B2, in layer h.1, linear, for 4.4 s"

file_of 0 late "$(waits 0 1 0)" '[0, 0.1, 0.1]'
file_of 1 late "$(waits 1 2 0)" '[0.1, 0, 0.1]'
file_of 2 late "$(waits 2 0 0)" '[0.1, 0.1, 0]'
named "ranks that wait for each other" "cycle 0 1F0 0>1>2 true" "chain        rank 0 waits for rank 1 (0RECV_F0), which waits for rank 2 (1RECV_F0), which waits for rank 0 (2RECV_F0): a cycle"

for r in 0 1; do
    file_of $r late '{"state": "idle"}' '[0.1, 0.1, 0.1]'
    jq '.known[2].agreements = 4' "run/diagnosis/rank-$r.json" >now && mv now "run/diagnosis/rank-$r.json"
done
named "a rank in code of its own" "absent 2 null  false" "rank 2 (host a, process 1) is alive but has not made the call"

failure="rank 1: stage 1, micro-batch 2, 1B2: out of memory"
file_of 0 "$failure" "$(waits 0 1 2)" '[0, 0.1, 0.1]'
file_of 2 "$failure" "$(waits 2 1 2)" '[0.1, 0.1, 0]'
named "a rank that failed" "failed 1 null 0>1 false" "reason       $failure"

file_of 0 "$failure" "$(waits 0 1 2)" '[0, 0.1, 0.1]'
file_of 1 "$failure" "$runs" '[0.1, 0, 0.1]'
file_of 2 "$failure" '{"state": "idle"}' '[0.1, 0.1, 0]'
named "a rank that failed and left a file" "failed 1 null 0>1 false" "failed rank  rank 1 (host a, process 101) failed by itself"

hang="pipeline: no action ended in time (timeout)"
file_of 0 "$hang" "$(waits 0 1 2)" '[0, 0.1, 0.1]'
file_of 1 "$hang" "$runs" '[0.1, 0, 0.1]'
file_of 2 "$hang" "$(waits 2 1 2)" '[0.1, 0.1, 0]'
named "a device that hangs" "hangs 1 1B2 0>1 false" "failed rank  rank 1 (host a, process 101) hangs"

# --- what is refused ---

refused() { # NAME MESSAGE
    run diagnose run --json out.json
    check "$1: exit code 1" exits 1
    check "$1: one line" lines 1 "$err"
    check "$1: why" has "$2" "$err"
    rm -rf run
}
run diagnose
check "no RUN: exit code 2" exits 2
refused "no directory" "run/diagnosis: cannot be read (No such file or directory); ranks leave files there"
mkdir -p run/diagnosis
refused "no file" "run/diagnosis: has no file of a rank"
file_of 0 late '{"state": "idle"}' '[0, 0, 0]'
cp run/diagnosis/rank-0.json run/diagnosis/rank-1.json
refused "a rank twice" "rank: expected one of its own, not that of another file"
file_of 0 late '{"state": "idle"}' '[0, 0]'
refused "a rank too few" "rank-0.json: known: expected an entry for each rank"
file_of 0 late '{"state": "waits"}' '[0, 0, 0]'
refused "a wait for nothing" "rank-0.json: devices[0].action: expected a text"
mkdir -p run/diagnosis
echo '{"format": "cgpipe diagnosis", "format": 1}' >run/diagnosis/rank-0.json
refused "a key twice" "rank-0.json: line 1: duplicate object key"
mkdir -p run/diagnosis
mkfifo run/diagnosis/rank-0.json
refused "a pipe" "run/diagnosis/rank-0.json: is not a regular file"
file_of 0 late '{"state": "idle"}' '[0, 0, 0]'
mv run/diagnosis/rank-0.json elsewhere && ln -s ../../elsewhere run/diagnosis/rank-0.json
refused "a link" "run/diagnosis/rank-0.json: is a link"
file_of 0 late '{"state": "idle"}' '[0, 0, 0]'
mv run/diagnosis elsewhere.d && ln -s ../elsewhere.d run/diagnosis
refused "a link to a directory" "run/diagnosis: cannot be read"
mkdir -p run/diagnosis
yes '[],' | head -n 1600000 | tr -d '\n' >run/diagnosis/rank-0.json
refused "4.8 MB" "rank-0.json: expected at most 2097152 bytes, got 4800"
mkdir -p run/diagnosis
printf '[%.0s' {1..65} >run/diagnosis/rank-0.json
refused "65 brackets in each other" "rank-0.json: expected JSON nested at most 64 deep, got 65"
mkdir -p run/diagnosis
printf '[%s[]]' "$(printf '[],%.0s' {1..100000})" >run/diagnosis/rank-0.json
CGP_LIMITS=json=20000000 refused "too much memory" "rank-0.json: expected JSON that takes at most 19 MiB of memory"

finish
