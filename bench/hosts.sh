#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# hosts.sh [ROUNDS] -- does the simulator predict step times on two hosts?
#
# The two hosts are network namespaces of this machine (tests/mpi/hosts.sh) with a network of RATE
# [1gbit]. Messages are delivered DELAY [0.0002] seconds late. `cgpipe bench transport` measures the
# network and writes the cluster file. For each model and number of micro-batches, a run of gpipe in
# one process measures the costs of layers. `cgpipe plan` reads the cluster file and the costs, and
# predicts each schedule. A run over the two hosts measures the same schedule. Each of ROUNDS [5]
# rounds runs all cases. Figures are medians over the rounds. The script needs Open MPI, jq, and the
# right to make network namespaces. Further variables: BUILD [build], STEPS [8], and RESULTS
# [bench/results], the directory of hosts.txt and hosts.csv.
set -u
cd "$(dirname "$0")/.." || exit
# shellcheck source=tests/mpi/hosts.sh
. tests/mpi/hosts.sh
enter_namespaces "$0" "$@"
# shellcheck source=tests/mpi/mpirun.sh
. tests/mpi/mpirun.sh
build=${BUILD:-build}
needs_mpi "$build"
cgpipe=$(cd "$build" && pwd)/cgpipe
results=${RESULTS:-bench/results}
rounds=${1:-5}
steps=${STEPS:-8}
export CGP_MPI_DELAY=${DELAY:-0.0002}
mkdir -p "$results"
make_hosts 2 "${RATE:-1gbit}"

options="--stages 2 --balance flops --batch 16 --steps $steps --dropout 0 --quiet"

# Run a command; if it fails, print its output.
try() {
    "$@" >"$work/out" 2>&1 || { echo "hosts.sh: $*" >&2; cat "$work/out" >&2; exit 1; }
}

echo round,width,chunks,schedule,measured,simulated,cluster_latency,cluster_bandwidth >"$results/hosts.csv"
# shellcheck disable=SC2086 # words
for round in $(seq "$rounds"); do
    try run_on_hosts 2 "$cgpipe" bench transport --json "$work/cluster.json" --quiet
    link=$(jq -r '[.links[0].latency_seconds, .links[0].bytes_per_second] | @csv' "$work/cluster.json")
    for width in 128 384; do
        model=gpt2:layers=8,width=$width,heads=$((width / 64)),vocab=1000,seq=128
        for chunks in 4 8; do
            try "$cgpipe" bench gpt2 --model $model $options --chunks $chunks --costs-out "$work/costs.json"
            for schedule in gpipe 1f1b zb-h1; do
                layout="$options --chunks $chunks --schedule $schedule"
                try run_on_hosts 2 "$cgpipe" bench gpt2 --model $model $layout --json "$work/run.json"
                try "$cgpipe" plan $model $layout --costs "$work/costs.json" --cluster "$work/cluster.json" --json "$work/plan.json"
                echo "$round,$width,$chunks,$schedule,$(jq .run_seconds "$work/run.json"),$(jq .run_seconds_simulated "$work/plan.json"),$link" |
                    tee -a "$results/hosts.csv" >&2
            done
        done
    done
done

# Print the medians of each case, and their ratio.
{
    echo "GPT-2 of 8 blocks, batch 16, two stages; two hosts as network namespaces, ${RATE:-1gbit}, messages $CGP_MPI_DELAY s late; $rounds rounds of $steps steps; seconds"
    echo
    tail -n +2 "$results/hosts.csv" | sort -t, -k2,2n -k3,3n -k4,4 -k1,1n | awk -F, '
        function median(values, n,    i, j, x) {
            for (i = 2; i <= n; i++) {
                x = values[i]
                for (j = i - 1; j >= 1 && values[j] > x; j--) values[j + 1] = values[j]
                values[j + 1] = x
            }
            return (values[int((n + 1) / 2)] + values[int(n / 2) + 1]) / 2
        }
        function show() {
            if (!n) return
            m = median(measured, n); s = median(simulated, n); error = s / m - 1
            printf "%5d %4d  %-8s %10.4f %10.4f %+7.1f %%\n", key[2], key[3], key[4], m, s, 100 * error
            if (error * error > worst * worst) worst = error
            n = 0
        }
        BEGIN { printf "%5s %4s  %-8s %10s %10s %9s\n", "width", "M", "schedule", "measured", "simulated", "error" }
        $2 "," $3 "," $4 != last { show(); last = $2 "," $3 "," $4; split($0, key, ",") }
        { n++; measured[n] = $5; simulated[n] = $6 }
        END { show(); printf "\nworst error of the simulated seconds: %+.1f %%\n", 100 * worst }'
} | tee "$results/hosts.txt"
