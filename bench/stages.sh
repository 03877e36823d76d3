#!/usr/bin/env bash
# One stage on one core against two stages on two cores: the seed experiment's GPT-2 at batch 8, 1 and 8 micro-batches.
#
#     bench/stages.sh [PROGRAM] [ROUNDS]        (make bench)
#
# Each round runs the four cases one after the other (A B C D A B C D ...), 5 steps each; a run's figure is the median
# of its steps but the first two. Every run's figure is kept in bench/stages.csv, the table is made of medians of rounds.
# Nothing else should run meanwhile.
set -eu
program=${1:-build/cgpipe}
rounds=${2:-5}
folder=$(cd "$(dirname "$0")" && pwd)
csv=$folder/stages.csv
echo "round,stages,chunks,samples_per_second,bubble_measured" >"$csv"

value() { sed -n "s/^ *\"$1\": \\([-0-9.e+]*\\),*\$/\\1/p" "$2" | head -1; }

json=$(mktemp)
trap 'rm -f "$json"' EXIT
for round in $(seq "$rounds"); do
    for case in "1 1" "2 1" "1 8" "2 8"; do
        read -r stages chunks <<<"$case"
        "$program" bench gpt2 --batch 8 --steps 5 --dropout 0 --stages "$stages" --chunks "$chunks" --json "$json" \
            >/dev/null
        echo "$round,$stages,$chunks,$(value samples_per_second "$json"),$(value bubble_measured "$json")" | tee -a "$csv"
    done
done

median() { awk -F, -v k="$1" -v m="$2" '$2 == k && $3 == m {print $4}' "$csv" | sort -g |
    awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }
a=$(median 1 1) b=$(median 2 1) c=$(median 1 8) d=$(median 2 8)
awk -v a="$a" -v b="$b" -v c="$c" -v d="$d" 'BEGIN {
    print ""
    print "samples/s       1 stage, 1 core   2 stages, 2 cores   ratio"
    printf "1 micro-batch   %15.3f   %17.3f   %5.2f\n", a, b, b / a
    printf "8 micro-batches %15.3f   %17.3f   %5.2f\n", c, d, d / c
    printf "8 against 1     %14.0f %%   %15.0f %%\n", 100 * c / a, 100 * d / b
}'
