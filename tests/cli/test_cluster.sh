#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_cluster.sh SOURCE_DIR BUILD_DIR -- cluster files. `cgpipe bench transport` measures messages
# between threads, and writes a file. (test_mpi_hosts measures messages between hosts.) Plans are
# simulated with cluster files. A file that does not fit the plan is refused.
source "$(dirname "$0")/support.sh"
command -v jq >/dev/null || { echo "skip: needs jq"; exit 77; }

# --- measured ---

run bench transport --json here.json
check "bench transport: exit code 0" exits 0
check "bench transport: a row for one rank and itself" test "$(grep -c '^rank:0 .*rank:0 ' "$out")" = 1
check "bench transport --json: a cluster of this host" \
    jq -e '.cgpipe_cluster == 1 and .hosts[0].name != "" and .hosts[0].cores >= 1 and .links == []' here.json
check "bench transport --json: a device a rank" jq -e '.devices == [{kind: "cpu", host: 0, memory_bytes: .hosts[0].memory_bytes}]' here.json
check "bench transport --json: a copy in memory, below a second, 1 MB/s to 1 TB/s" jq -e \
    '.hosts[0] | .latency_seconds > 0 and .latency_seconds < 1 and .bytes_per_second > 1e6 and .bytes_per_second <= 1e12' here.json
run bench transport --devices cpu,ref:0@1GiB --json two.json --quiet
check "bench transport --devices: their kinds" test "$(jq -c '[.devices[].kind]' two.json)" = '["cpu","ref"]'
check "bench transport --quiet" test ! -s "$out"
fails 2 "--stages: bench transport has no model (leave it out)" bench transport --stages 2
fails 2 "--schedule: bench transport has no model (leave it out)" bench transport --schedule gpipe
fails 1 "none/here.json: cannot be written (none/: No such file or directory)" bench transport --json none/here.json

# --- a simulation with two hosts of two devices ---

cat >four.json <<'JSON'
{
  "cgpipe_cluster": 1,
  "hosts": [
    {"name": "a", "cores": 2, "memory_bytes": 8589934592, "latency_seconds": 1, "bytes_per_second": 1e15},
    {"name": "b", "cores": 2, "memory_bytes": 8589934592, "latency_seconds": 1, "bytes_per_second": 1e15}
  ],
  "devices": [{"kind": "cpu", "host": 0}, {"kind": "cpu", "host": 0}, {"kind": "cpu", "host": 1}, {"kind": "cpu", "host": 1}],
  "links": [
    {"latency_seconds": 100, "bytes_per_second": 1e15},
    {"from": 1, "to": 0, "latency_seconds": 1000, "bytes_per_second": 1e15}
  ]
}
JSON
model=gpt2:layers=4,width=32,heads=2,seq=16,vocab=64
run profile $model --batch 1 --chunks 1 --repeats 1 --json costs.json
simulated() { # STAGES FILE
    run plan $model --stages "$1" --batch 1 --chunks 1 --costs costs.json --cluster "$2" --json plan.json
    jq '.run_seconds_simulated | floor' plan.json
}
check "plan --cluster: two devices of a host: 1 there, 1 back" test "$(simulated 2 four.json)" = 2
check "plan --cluster: four devices: 1 + 100 + 1 there, 1 + 1000 + 1 back" test "$(simulated 4 four.json)" = 1104
check "plan --cluster: is said" has "costs of costs.json, messages of four.json)" "$out"
run schedule gpipe --stages 4 --chunks 1 --cluster four.json --message-bytes 1M
check "schedule --cluster: the same messages, and 12 for 4 F and 4 B" has "makespan     1116, " "$out"
check "schedule --cluster: is said" has "messages of 1048576 bytes by four.json" "$out"
jq '.links[0] = {latency_seconds: 100, bytes_per_second: 10} | .links[1].bytes_per_second = 100' four.json >slow.json
run schedule gpipe --stages 4 --chunks 1 --cluster slow.json --message-bytes 1000
check "schedule --cluster: bytes / bandwidth, 100 s there, 10 s back" has "makespan     1226, " "$out"
run schedule zb-2p --stages 4 --chunks 8 --cluster four.json --message-bytes 1M
check "schedule --cluster: heuristic schedules take it" exits 0
run schedule zb-v --stages 4 --chunks 8 --cluster four.json --message-bytes 1M
check "schedule --cluster: stages of one device send nothing" exits 0

# --- replicas ---

# The replicas of one stage are the four devices. Replicas 0 and 1 are on one host, and so are 2 and
# 3. Their gradients are one piece, of which half is sent at level 0, and a quarter at level 1. Both
# are sent there and back: 2 (1 + 100) s of latency, or 2 (1 + 1000) s on the link from host b. With
# two replicas of two stages, level 0 is between the hosts.
replicated() { # FILE OPTION... : print the seconds of the exchange
    run plan $model --batch 4 --chunks 4 --costs costs.json --cluster "$1" --json plan.json "${@:2}"
    jq '.exchange_seconds_simulated | floor' plan.json
}
check "plan --replicas --cluster: one replica adds nothing" test "$(replicated four.json)" = 0
check "plan --replicas --cluster: four replicas" test "$(replicated four.json --replicas 4)" = 2002
check "plan --replicas --cluster: is a part of the step" jq -e '.run_seconds_simulated > 2002' plan.json
check "plan --replicas --cluster: is said" has " s of it to add the gradients of 4 replicas, " "$out"
check "plan --replicas --cluster: two of two stages" test "$(replicated four.json --replicas 2 --stages 2)" = 2000
jq '.links = [{latency_seconds: 0, bytes_per_second: 1000}] | .hosts[] |= (.latency_seconds = 0 | .bytes_per_second = 1000)' four.json >bytes.json
replicated bytes.json --replicas 4 >/dev/null
check "plan --replicas --cluster: a half and a quarter of the gradients, there and back" jq -e \
    '(.exchange_seconds_simulated - 1.5 * .devices[0].gradient_bytes / 1000 | fabs) < 0.001' plan.json
run plan $model --batch 4 --chunks 4 --tflops 1 --replicas 2 --json plan.json
check "plan --replicas --tflops: unknown" jq -e '.exchange_seconds_simulated == null and .run_seconds_simulated > 0' plan.json
check "plan --replicas --tflops: is said" has "the time to add the gradients of 2 replicas is not known (--cluster)" "$out"
fails 1 "four.json: devices: expected 8 or more, 2 for each of 4 replicas, got 4" \
    plan $model --stages 2 --batch 4 --chunks 4 --costs costs.json --cluster four.json --replicas 4
jq '.devices[2].memory_bytes = 1000' four.json >bad.json
fails 1 "bad.json: devices[2]: expected the kind, speeds and memory_bytes of devices[0], as both have the same stages in different replicas" \
    plan $model --stages 2 --batch 4 --chunks 4 --costs costs.json --cluster bad.json --replicas 2

# --- what does not fit ---

fails 1 "four.json: devices[0].flops_per_second: expected a number for f32 (or --costs FILE, or --tflops)" \
    plan $model --stages 2 --cluster four.json
fails 2 "--cluster: needs --message-bytes BYTES" schedule gpipe --cluster four.json
fails 2 "--message-bytes: expected --cluster FILE" schedule gpipe --message-bytes 1M
fails 2 "--cluster: cannot be with --latency or --transfer, which it replaces (leave out one)" \
    schedule gpipe --cluster four.json --message-bytes 1M --latency 1
fails 1 "four.json: devices: expected 5 or more, one for each stage's, got 4" \
    schedule gpipe --stages 5 --cluster four.json --message-bytes 1M
# refused LINE JQ : change the cluster file by the jq filter; check that a plan in 4 stages fails
# with this line
refused() {
    jq "$2" four.json >bad.json
    fails 1 "bad.json: $1" plan $model --stages 4 --batch 1 --chunks 1 --costs costs.json --cluster bad.json
}
refused "devices: expected 4 or more, one for each stage's, got 3" 'del(.devices[3])'
refused "devices[1].kind: expected cpu, got cuda" '.devices[1].kind = "cuda"'
refused "devices[2]: cpu:2 needs ..." '.devices[2].memory_bytes = 1000'
refused "links: expected one from host 1 to host 0 (or one without from and to, for all)" '.links = [.links[0] + {from: 0, to: 1}]'
refused "hosts[1]: expected latency_seconds and bytes_per_second, as devices 2 and 3 are on it" 'del(.hosts[1].latency_seconds, .hosts[1].bytes_per_second)'
refused "hosts[1].latency_seconds: expected a number from 0 to 1e+06" 'del(.hosts[1].latency_seconds)'
refused "links[0].bytes_per_second: expected a number from 1 to 1e+18" '.links[0].bytes_per_second = 0'
refused "links[1].to: expected a whole number from 0 to 1" '.links[1].to = 2'
refused "links[1].to: expected another host than \`from\` (within a host: the keys of hosts)" '.links[1].to = 1'
refused "devices[3].host: expected a whole number from 0 to 1" '.devices[3].host = 2'
refused "hosts[0].name: expected a text" '.hosts[0].name = 5'
refused "hosts: expected a list of 1 to 65536" '.hosts = []'
refused "cgpipe_cluster: expected 1, ..." '.cgpipe_cluster = 2'
refused "cgpipe_cluster: expected 1, ..." '[]'
echo '{"cgpipe_cluster": 1,' >bad.json
fails 1 "bad.json: line ..." plan $model --stages 2 --costs costs.json --cluster bad.json
printf '[%.0s' {1..65} >bad.json
fails 1 "bad.json: expected JSON nested at most 64 deep, got 65" plan $model --stages 2 --costs costs.json --cluster bad.json
CGP_LIMITS=json=1000 fails 1 "costs.json: expected JSON that takes at most 0 MiB of memory, ..." plan $model --stages 2 --costs costs.json
mkfifo pipe
fails 1 "pipe: is not a regular file" plan $model --stages 2 --costs costs.json --cluster pipe
fails 1 "pipe: is not a regular file" plan $model --stages 2 --costs pipe
fails 1 "missing.json: cannot be read ..." plan $model --stages 2 --costs costs.json --cluster missing.json

# --- plans for devices that this machine does not have ---

# The time of a stage of n layers is n times the FLOPs of one layer, divided by the speed.
gpt2=gpt2:layers=8,width=64,heads=2,seq=16,vocab=64
run plan $gpt2 --batch 4 --chunks 1 --tflops 1 --json one.json
check "plan --tflops: exit code 0" exits 0
check "plan --tflops: is said" has "(costs of --tflops)" "$out"
check "plan --tflops: FLOPs / speed" jq -e \
    '.run_seconds_simulated * 1e12 / .flops_per_step | . > 0.999 and . < 1.001' one.json
run plan $gpt2 --batch 4 --chunks 1 --tflops 1 --efficiency 0.25 --json quarter.json
check "plan --efficiency: a quarter of the speed" test \
    "$(jq -s '.[1].run_seconds_simulated / .[0].run_seconds_simulated * 1000 | round' one.json quarter.json)" = 4000
run plan $gpt2 --batch 4 --chunks 1 --tflops 1e6 --memory-bandwidth 1 --json slow.json
check "plan --memory-bandwidth: bytes count" test \
    "$(jq -s '.[1].run_seconds_simulated > .[0].run_seconds_simulated' one.json slow.json)" = true
check "plan --memory-bandwidth: the update has a time" jq -e \
    '.step_seconds_simulated > .run_seconds_simulated' slow.json
jq '.devices[] += {kind: "h100", flops_per_second: {f32: 2e12, bf16: 8e12}, efficiency: 0.5}' four.json >gpus.json
run plan $gpt2 --batch 4 --chunks 1 --cluster gpus.json --json file.json
check "plan --cluster: with the speed of the file's devices" test \
    "$(jq -s '.[1].run_seconds_simulated / .[0].run_seconds_simulated * 1000 | round' one.json file.json)" = 1000
run plan $gpt2 --batch 4 --chunks 1 --precision bf16 --cluster gpus.json --json bf16.json
check "plan --cluster: with the speed of a precision" test \
    "$(jq -s '.[0].run_seconds_simulated / .[1].run_seconds_simulated * 1000 | round' one.json bf16.json)" = 4000
run plan $gpt2 --stages 4 --batch 4 --chunks 2 --cluster gpus.json --json four_stages.json
check "plan --cluster: with the links of the file" jq -e '.run_seconds_simulated > 1000' four_stages.json
jq '.devices[].memory_bytes = 200000' gpus.json >small.json
run plan $gpt2 --stages 2 --batch 4 --chunks 2 --schedule 1f1b --cluster small.json --search
check "search --cluster: the memory of the devices is the limit" \
    grep -q 'no plan fits in 195.3 KiB; the least that would do is' "$err"
run plan $gpt2 --stages 2 --batch 4 --chunks 2 --cluster gpus.json --search
check "search --cluster: with estimated costs" has "with costs of gpus.json" "$out"
fails 1 "gpus.json: devices[0].flops_per_second: expected a number for tf32 (or --costs FILE, or --tflops)" \
    plan $gpt2 --precision tf32 --cluster gpus.json
jq '.devices[1].efficiency = 0.25 | .hosts[].latency_seconds = 0' gpus.json >unequal.json
run plan $gpt2 --stages 2 --batch 8 --chunks 8 --cluster unequal.json --json unequal_plan.json
check "plan --cluster: half the speed, fewer layers" jq -e '.balance[0] > .balance[1] + 2' unequal_plan.json
run plan $gpt2 --stages 2 --batch 8 --chunks 8 --cluster unequal.json --balance 4,8 --json other_plan.json
check "plan --cluster: each device has its own times" test "$(jq -s \
    '.[0].run_seconds_simulated < 0.8 * .[1].run_seconds_simulated' unequal_plan.json other_plan.json)" = true
run plan $gpt2 --stages 2 --batch 8 --chunks 8 --cluster unequal.json --search --json unequal_search.json
check "search --cluster: no slower than the plan" test "$(jq -s \
    '.[1].choices[0].run_seconds_simulated <= .[0].run_seconds_simulated' unequal_plan.json unequal_search.json)" = true
jq '.devices[0].memory_bytes = 2000000 | .devices[1].memory_bytes = 9000000' unequal.json >memory.json
run plan $gpt2 --stages 2 --batch 4 --chunks 2 --schedule gpipe --cluster memory.json --search --json memory_plan.json --plan-out memory_file.json
check "search --cluster: each device has its own memory" jq -e \
    '.choices[0] | .balance[0] < .balance[1] and .planned_bytes_fullest > 2000000' memory_plan.json
check "search --cluster: the command has the limits" jq -e \
    '.command | contains(" --devices cpu@2000000,cpu@9000000 ")' memory_plan.json
check "search --cluster: and so has the plan file" test "$(jq -c .options.devices memory_file.json)" = '["cpu@2000000","cpu@9000000"]'
run plan $gpt2 --stages 2 --batch 4 --chunks 2 --schedule 1f1b --cluster memory.json --recompute budget --search --plan-out budget_file.json
check "search --cluster: a plan by budget is written" test "$code-$(jq .cgpipe_plan budget_file.json)" = 0-1
jq '.devices[0].memory_bytes = 1000' memory.json >tiny.json
run plan $gpt2 --stages 2 --batch 4 --chunks 2 --schedule gpipe --cluster tiny.json --search
check "search --cluster: no plan fits one device" grep -q 'no plan fits on the devices; the least that would do is' "$err"
jq '.devices[] |= {kind: "gpu", host, preset: "H100"}' four.json >preset.json
jq '.devices[] |= {kind: "gpu", host, memory_bytes: 80000000000, bytes_per_second: 3.35e12, flops_per_second: {f32: 6.7e13, bf16: 9.89e14, tf32: 4.94e14}}' four.json >spelled.json
jq '.devices[].preset = "A100"' spelled.json >replaced.json
for file in preset spelled replaced; do
    run plan $gpt2 --stages 2 --batch 4 --chunks 2 --precision bf16 --cluster $file.json --json $file.plan.json
    jq -c '[.step_seconds_simulated, .run_seconds_simulated]' $file.plan.json >$file.times
done
check "plan --cluster: a preset has the speed of its device" cmp -s preset.times spelled.times
check "plan --cluster: other keys replace the preset's" cmp -s replaced.times spelled.times
refused_speed() { # LINE JQ
    jq "$2" gpus.json >bad.json
    fails 1 "bad.json: $1" plan $gpt2 --stages 2 --batch 4 --cluster bad.json
}
refused_speed "devices[0].efficiency: expected a number from 0.001 to 1" '.devices[].efficiency = 40'
refused_speed "devices[0].flops_per_second: expected an object with f32, bf16 or tf32" '.devices[].flops_per_second = 1e12'
refused_speed "devices[0].flops_per_second: expected an object with f32, bf16 or tf32" '.devices[].flops_per_second = {fp8: 1e12}'
refused_speed "devices[0].preset: expected one of A100, H100, H200, B200, MI300X" '.devices[].preset = "H1000"'
refused_speed "devices[0].f32: expected a number from 1 to 1e+20" '.devices[].flops_per_second.f32 = 0'
fails 2 "--tflops: cannot be with --costs (leave out one)" plan $gpt2 --tflops 1 --costs costs.json
fails 2 "--efficiency: expected --tflops X" plan $gpt2 --efficiency 0.4
fails 2 "--efficiency 40: expected more than 0, at most 1" plan $gpt2 --tflops 1 --efficiency 40
fails 2 "--tflops 0: expected more than 0, at most 1e6" plan $gpt2 --tflops 0

finish
