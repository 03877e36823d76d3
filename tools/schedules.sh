#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Generate docs/reference/schedules.md and its drawings with the program in BUILD:
#
#     tools/schedules.sh BUILD DIRECTORY        docs/reference, or another directory to compare with
#
# Every figure comes from `cgpipe schedule`. If a device has v stages, each of its stages costs 1/v.
# So all schedules have the same work per device.
set -eu
export LC_ALL=C
program=$1/cgpipe
directory=$2
mkdir -p "$directory/schedules"
list=$(mktemp)
figures=$(mktemp)
trap 'rm -f "$list" "$figures"' EXIT
"$program" schedule --list --json "$list" >/dev/null

value() { # KEY: its value in $figures
    sed -n "s/^  \"$1\": \([^,]*\),*$/\1/p" "$figures"
}

# max_of KEY: print the largest number in the list KEY of $figures.
max_of() {
    awk -v key="\"$1\": [" 'index($0, key) { on = 1; next } on && /]/ { exit } on && $1 + 0 > m { m = $1 + 0 } END { print m + 0 }' \
        "$figures"
}

# simulate NAME: simulate and draw a schedule, and write its figures to $figures.
simulate() {
    local v
    v=$(awk -v name="\"$1\"" 'index($0, "\"schedule\": " name) { on = 1 } on && /"virtual":/ { gsub(/[^0-9]/, ""); print; exit }' "$list")
    command="cgpipe schedule $1 --stages 4 --chunks 8"
    # shellcheck disable=SC2086
    "$program" ${command#cgpipe } --svg "$directory/schedules/$1.svg" --json "$figures" >/dev/null
    peak=$(max_of peak_slots_per_device | awk -v v="$v" '{ printf "%g", $1 / v }')
    buffers=$(max_of min_capacity)
}

names() {
    sed -n 's/^ *"schedule": "\(.*\)",*$/\1/p' "$list"
}

percent() {
    awk -v x="$1" 'BEGIN { printf "%.1f %%", 100 * x }'
}

# text_of NAME KEY: print a text from the list of schedules, with its line breaks.
text_of() {
    awk -v name="\"$1\"" -v key="\"$2\": \"" 'index($0, "\"schedule\": " name) { on = 1 }
        on && (at = index($0, key)) { text = substr($0, at + length(key)); sub(/",?$/, "", text); gsub(/\\n/, "\n", text); print text; exit }' \
        "$list"
}

page() {
    cat <<'TEXT'
# Schedules

The tables show all schedules of `cgpipe schedule`, on 4 devices with 8 micro-batches. Forward (F),
input gradient (I) and weight gradient (W) of a micro-batch take 1 each on a device; B is I and W in
one piece. With v stages on a device each takes 1/v (`--cost-f`, `--cost-i` and `--cost-w` set other
times of a stage). `make schedules` makes this page and its drawings, and a test fails when they are
stale.

- **Bubble**: the fraction of time in which the devices idle.
  - *By makespan*, from the start of the step to its end: for steps after which all devices wait for
    each other, as they do here for the gradient norm.
  - *By span*, from a device's first action to its last: for a next step that may start on each
    device that is done. The zero-bubble papers quote it.
- **In flight**: the largest number of micro-batches between their F and the end of their backward,
  over time and devices. Each stage of a device with v stages counts 1/v. Activation memory is
  proportional to it.
- **Buffers**: the minimum number on every edge with which the schedule cannot deadlock, for any
  costs.

In the drawings every kind has its own colour, letter and texture. Later stages of a device are
darker. The red border is a critical path.

| schedule | makespan | bubble by makespan | bubble by span | in flight | buffers | when to use it |
|---|---|---|---|---|---|---|
TEXT
    for name in $(names); do
        simulate "$name"
        echo "| [\`$name\`](#$name) | $(value makespan | sed 's/\.0$//') | $(percent "$(value bubble_makespan)") |" \
            "$(percent "$(value bubble_span)") | $peak | $buffers | $(text_of "$name" when) |"
    done
    cat <<'TEXT'

Your own schedule is a CSV file in the format of PyTorch's pipelining: a line per device, a cell per
action (`2F0`: stage 2, forward, micro-batch 0), with or without transfers.
`cgpipe schedule --check FILE` proves that it is complete, in order and free of deadlock, or shows
where it is not, and simulates it. It reads the output of `_dump_csv()` in PyTorch 2.5, 2.6, 2.9 and
2.15 for each of its schedules, also with the older letters (B for I, BW for B).
`tests/data/schedules` has some of each.

With transfers, RECV only posts a receive, and the action that needs the message waits. Makespan and
bubble are those without transfers. But a posted receive holds a buffer, so more buffers may be
needed.
TEXT
    for name in $(names); do
        simulate "$name"
        printf '\n## %s\n\n%s\n\n![%s](schedules/%s.svg)\n\n    %s\n' "$name" "$(text_of "$name" rule)" "$name" "$name" "$command"
    done
}

page >"$directory/schedules.md"
