#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""planners.py FILE.json... -- balance the layer graphs of msr-fiddle/dnn-partitioning.

Source of the graphs: Tarnawski et al. 2020, "Efficient Algorithms for Device Placement of DNN Graph
Operators". Each graph has forward nodes and backward nodes. A forward node and its backward become
one layer of a table of layers (docs/reference/layer-tables.md). `cgpipe plan` balances the table
over the graph's accelerators, for 1f1b with many micro-batches. The resulting split is written in
the graphs' own format. As in the authors' program, the load of an accelerator is the time of its
nodes plus the time of each value that it sends or receives. The script prints the largest load.
With --dp PROGRAM (the authors' dp.cpp, compiled), the script also computes the authors' optimum and
their PipeDream baseline. The authors' program must then find the same load for cgpipe's split.
"""

import argparse
import collections
import csv
import json
import pathlib
import subprocess
import tempfile

MICRO_BATCHES = 256
LONGEST = 900  # time limit of the authors' program, in seconds


def layers_of(graph):
    """Return the ids of the forward nodes in topological order. For each forward node, also return
    the ids of its layer's nodes (itself and its backward), and of the forward nodes that it
    reads."""
    forward = {n["id"]: n for n in graph["nodes"] if not n["isBackwardNode"]}
    group = {}
    members = collections.defaultdict(list)
    by_colour = {n["colorClass"]: n["id"] for n in forward.values() if "colorClass" in n}
    for node in graph["nodes"]:
        own = node["id"] if node["id"] in forward else by_colour[node["colorClass"]]
        group[node["id"]] = own
        members[own].append(node["id"])
    before = {i: set() for i in forward}
    for edge in graph["edges"]:
        source, target = edge["sourceId"], edge["destId"]
        if source in forward and target in forward:
            before[target].add(source)
    order, left = [], dict(before)
    while left:
        ready = min(i for i, waits in left.items() if not waits - set(order))
        order.append(ready)
        del left[ready]
    return order, members, before


def write_table(path, graph, order, members, before):
    node = {n["id"]: n for n in graph["nodes"]}
    sent = {e["sourceId"]: e["cost"] for e in graph["edges"]}
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow(
            ["name", "inputs", "forward_seconds", "backward_seconds", "parameter_bytes"]
            + ["saved_bytes", "output_bytes"]
        )
        for i in order:
            backward = sum(node[m]["fpgaLatency"] for m in members[i] if m != i)
            inputs = " ".join(f"n{k}" for k in order if k in before[i]) or "-"
            size = sum(node[m]["size"] for m in members[i])
            # The graphs give one size for parameters and activations together. For a message, they
            # give a cost instead of bytes, so a message gets one byte for each 1e-9 of its cost.
            out.writerow(
                [f"n{i}", inputs, node[i]["fpgaLatency"] / 1e3, backward / 1e3, 4]
                + [int(size), int(1e6 * sent.get(i, 0))]
            )


def largest_load(graph, split):
    """Return the largest load of an accelerator, in the graphs' unit."""
    place = {i: d for d, part in enumerate(split) for i in part}
    load = [0.0] * len(split)
    for node in graph["nodes"]:
        load[place[node["id"]]] += node["fpgaLatency"]
    sent, received = {}, {}
    for edge in graph["edges"]:
        source, target = edge["sourceId"], edge["destId"]
        if place[source] != place[target]:
            sent[source] = edge["cost"]
            received[source, place[target]] = edge["cost"]
    for source, cost in sent.items():
        load[place[source]] += cost
    for (_, device), cost in received.items():
        load[device] += cost
    return max(load)


def balance_of(program, table, devices):
    command = [program, "plan", table, "--stages", str(devices), "--chunks", str(MICRO_BATCHES)]
    done = subprocess.run(
        command + ["--json", "-", "--quiet"], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)["balance"]


def their_load(dp, arguments, path):
    with path.open(encoding="utf-8") as graph:
        done = subprocess.run(
            [dp, *arguments],
            stdin=graph,
            capture_output=True,
            text=True,
            check=True,
            timeout=LONGEST,
        )
    if "-expert" in arguments:
        return float(done.stderr.rsplit("max-load of the split:", 1)[1])
    return json.loads(done.stdout)["maxLoad"]


def compare(options, path, directory):
    graph = json.loads(path.read_text(encoding="utf-8"))
    order, members, before = layers_of(graph)
    table = directory / f"{path.stem}.csv"
    write_table(table, graph, order, members, before)
    split, at = [], 0
    for layers in balance_of(options.program, str(table), graph["maxFPGAs"]):
        split.append([m for i in order[at : at + layers] for m in members[i]])
        at += layers
    ours = largest_load(graph, split)
    row = f"{path.stem:24} {len(order):6} {graph['maxFPGAs']:7} {ours:10.3f}"
    if options.dp:
        file = directory / "split.json"
        parts = [{"load": -1, "nodes": part} for part in split]
        cpus = [{"load": 0, "nodes": []}] * graph["maxCPUs"]
        file.write_text(json.dumps({"cpus": cpus, "fpgas": parts}), encoding="utf-8")
        same = their_load(options.dp, ["-expert", str(file)], path)
        assert abs(same - ours) <= 1e-5 * ours, (same, ours)
        row += f" {their_load(options.dp, ['-pipeDream'], path):10.3f}"
        try:
            best = their_load(options.dp, [], path)
            row += f" {best:10.3f} {100 * (ours / best - 1):8.1f} %"
        except subprocess.TimeoutExpired:
            row += f" {'(too long)':>10}"
    print(row, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("graphs", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", default="build/cgpipe")
    parser.add_argument("--dp", help="their program, dp.cpp compiled")
    options = parser.parse_args()
    print(f"{'graph':24} {'layers':>6} {'devices':>7} {'ours':>10}", end="")
    print(f" {'PipeDream':>10} {'optimum':>10} {'gap':>10}" if options.dp else "")
    with tempfile.TemporaryDirectory() as directory:
        for path in options.graphs:
            compare(options, path, pathlib.Path(directory))


if __name__ == "__main__":
    main()
