#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compare the published tables with ours: bench/tables.py resnet101-speed amoebanetd-memory ...

For each name, the script plans, simulates and runs the cells of published.py with `cgpipe plan`,
`profile` and `bench`. It writes results.json and pictures to bench/NAME/, and the table to that
directory's README.md. Speed-ups are simulated from bench/NAME/costs.json. If this file is missing,
or with PROFILE=1 in the environment, the costs are measured first. Further variables:

    PLAN_ONLY=1         train nothing
    BUILD=DIRECTORY     the build that contains cgpipe
    RESULTS=DIRECTORY   write results.json there, and write nothing else
    COSTS=FILE          read the costs of layers from this file"""
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import plot
from published import TABLES

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAM = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve() / "cgpipe"
PLAN_ONLY = bool(os.environ.get("PLAN_ONLY"))
RESULTS = os.environ.get("RESULTS")
COSTS = os.environ.get("COSTS")
GIB = 2.0**30

# Samples of a micro-batch when the layers of a speed table are profiled. The largest pipeline in
# the table has micro-batches of this size.
PROFILED = {"resnet101-speed": 36, "amoebanetd-speed": 40, "unet-speed": 16}
# Memory limit of a device when cgpipe's schedules are compared. The devices of the published runs
# had 24 GB.
LIMIT_BYTES = 22 << 30
MODES = ["never", "never+selective", "except_last", "except_last+selective"]
# For a memory table, the entries that fit this machine are run with batch 4. For a speed table, the
# entries for which there are enough cores are run with batch 8.
RUN = {"memory": {"batch": 4, "steps": 2}, "speed": {"batch": 8, "steps": 5}}


class Cgpipe(Exception):
    """cgpipe has failed; the text is its error message."""


def cgpipe(command, model, options):
    """Run the program; return its JSON."""
    words = [word for key, value in options.items() if value for word in ("--" + key, str(value))]
    done = subprocess.run([PROGRAM, command, model, *words, "--json", "-", "--quiet"],
                          capture_output=True, text=True, cwd=ROOT,
                          env={**os.environ, "CGP_LOG": "error"})
    if done.returncode != 0:
        raise Cgpipe(done.stderr.strip())
    return json.loads(done.stdout)


def options_of(table, cell, **changes):
    """Return the options of an entry of published.py. Momentum and weight decay are off, as in
    torchgpipe's scripts."""
    _, _, batch, chunks, stages, balance, recompute, _ = cell
    options = {"batch": batch, "chunks": chunks, "stages": stages, "recompute": recompute,
               "schedule": "gpipe", "optimizer": table["optimizer"], "momentum": "0",
               "weight-decay": "0", "balance": ",".join(map(str, balance))}
    return {**options, **changes}


def cell_report(table, cell):
    name, _, batch, chunks, stages, balance, recompute, figures = cell
    return {"name": name, "batch": batch, "chunks": chunks, "stages": stages,
            "recompute": recompute, "published_balance": balance,
            "published": dict(zip(table["headings"], figures))}


def largest(plan):
    return max(device["planned_bytes"] for device in plan["devices"])


def number(value, digits=3):
    return "–" if value is None else f"{value:,.{digits}f}"


def gib(value):
    return number(None if value is None else value / GIB)


def table(heading, rows):
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def shown(balance):
    return ",".join(map(str, balance)) or "–"


def published(cell):
    return ["–" if value is None else f"{value:g}" for value in cell["published"].values()]


# --- memory ---


def memory_rows(cells):
    heading = ["", "parameters", "balance", "model GiB", "activation GiB", "all GiB",
               "largest device GiB"]
    heading += ["published: " + key for key in cells[0]["published"]]
    rows = []
    for cell in cells:
        for plan in cell["plans"]:
            rule = "" if cell["stages"] == 1 else f" ({plan['rule']})"
            rows.append([cell["name"], f"{plan['parameters']:,}", shown(plan["balance"]) + rule,
                         gib(plan["model_bytes"]), gib(plan["activation_bytes"]),
                         gib(plan["planned_bytes"]), gib(plan["largest_device_bytes"])]
                        + published(cell))
    return table(heading, rows)


def run_rows(cells):
    """Return rows that compare the memory of the small runs with the memory in their plans."""
    heading = ["", "batch", "micro-batches", "planned GiB", "allocated GiB", "resident GiB",
               "resident - planned MiB"]
    rows = [[cell["name"], str(r["batch"]), str(r["microbatches"]), gib(r["planned_bytes_total"]),
             gib(r["allocated_bytes_total"]), gib(r["resident_growth_bytes"]),
             number((r["resident_growth_bytes"] - r["planned_bytes_total"]) / 2**20, 1)]
            for cell in cells if (r := cell.get("run"))]
    return ["", "Run with a smaller batch, all else as above:",
            ""] + table(heading, rows) if rows else []


def memory_picture(path, title, cells):
    """Draw the memory of activations if it is published, otherwise all memory."""
    cells = [cell for cell in cells if cell["name"] != "baseline"]
    keys = [key for key in cells[0]["published"] if "activation" in key]
    what = "activation_bytes" if keys else "planned_bytes"
    keys = keys or list(cells[0]["published"])
    series = {("Huang et al." if "Huang" in key else "torchgpipe"):
              [(cell["stages"], cell["published"][key]) for cell in cells] for key in keys}
    for rule, name in (("published", "cgpipe, published balance"),
                       ("size", "cgpipe, balance by size")):
        points = []
        for cell in cells:
            plans = {plan["rule"]: plan for plan in cell["plans"]}
            if rule in plans or cell["stages"] == 1:
                points.append((cell["stages"], (plans.get(rule) or cell["plans"][0])[what] / GIB))
        if len(points) == len(cells):
            series[name] = points
    plot.lines(path, title, "stages", "GiB, all devices", series)


def memory_plan(table, cell, rule):
    plan = cgpipe("plan", cell[1],
                  options_of(table, cell, **({} if rule == "published" else {"balance": "size"})))
    model = sum(device[key + "_bytes"] for device in plan["devices"]
                for key in ("parameter", "gradient", "optimizer"))
    return {"balance": plan["balance"], "model_bytes": model,
            "activation_bytes": plan["activation_bytes_total"],
            "state_bytes": sum(device["state_bytes"] for device in plan["devices"]),
            "planned_bytes": plan["planned_bytes_total"], "largest_device_bytes": largest(plan),
            "rule": rule, "model": plan["model"], "parameters": plan["parameters"]}


def memory_run(table, cell):
    """Run an entry of published.py at a small batch. If the run does not fit this machine, print
    the reason and return None."""
    changes = {**RUN["memory"], "chunks": min(cell[3], RUN["memory"]["batch"])}
    try:
        return cgpipe("bench", cell[1], options_of(table, cell, **changes))
    except Cgpipe as failure:
        print(f"{cell[0]}: {failure}", flush=True)
        return None


def memory(name, directory):
    table, cells = TABLES[name], []
    for cell in table["cells"]:
        report = cell_report(table, cell)
        rules = ["published"] * bool(cell[5]) + ["size"] * (cell[4] > 1 or not cell[5])
        report["plans"] = [memory_plan(table, cell, rule) for rule in rules]
        cells.append(report)
    for cell, report in zip(table["cells"], cells):
        if not PLAN_ONLY and (run := memory_run(table, cell)):
            report["run"] = run
    suffix = "old" if name.endswith("-old") else ""
    write(directory, "results" + ("-" + suffix if suffix else ""),
          {"benchmark": name, "title": table["title"], "cells": cells})
    if RESULTS:
        return
    what = "activations" if "activation" in " ".join(table["headings"]) else "memory"
    picture = what + ("-" + suffix if suffix else "") + ".svg"
    memory_picture(directory / picture, f"{table['title'].split(',')[0]}: {what}", cells)
    fill(directory, suffix, name, memory_rows(cells) + run_rows(cells) + picture_of(picture))


# --- speed ---


def speed_rows(cells):
    heading = ["", "batch", "chunks", "published balance: samples/s", "x", "our balance: samples/s",
               "x", "our balance", "best of our schedules", "x", "largest device GiB"]
    heading += ["published: " + key for key in cells[0]["published"]]
    rows = []
    for cell in cells:
        ours, own, best = (cell[key + "_simulated"]
                           for key in ("published_balance", "own_balance", "best"))
        rows.append([cell["name"], str(cell["batch"]), str(cell["chunks"]),
                     number(ours["samples_per_second"]), number(ours["speedup"]),
                     number(own["samples_per_second"]), number(own["speedup"]),
                     shown(own["balance"]), f"{best['schedule']}, {best['recompute']}",
                     number(best["speedup"]), gib(best["largest_device_bytes"])] + published(cell))
    return table(heading, rows)


def measured_rows(cells):
    heading = ["", "batch", "chunks", "measured: samples/s", "x", "simulated: samples/s"]
    rows = [[cell["name"], str(m["batch"]), str(m["chunks"]), number(m["samples_per_second"]),
             number(m["speedup"]), number(m["simulated_samples_per_second"])] for cell in cells
            if (m := cell.get("measured"))]
    return ["", "Measured with our balance where this machine has the cores, at a small batch:",
            ""] + \
        table(heading, rows) if rows else []


def speed_picture(path, title, cells):
    """Draw the speed-up over the number of stages. For AmoebaNet, draw only rows with 32
    micro-batches."""
    if any(cell["name"].endswith("m32") for cell in cells):
        cells = [cell for cell in cells if cell["name"].endswith("m32")]
    else:
        cells = cells[1:]
    keys = {"x": "torchgpipe", "x Huang": "Huang et al."}
    series = {name: [(cell["stages"], cell["published"][key]) for cell in cells]
              for key, name in keys.items() if key in cells[0]["published"]}
    for key, name in (("published_balance", "cgpipe, published balance"),
                      ("own_balance", "cgpipe, our balance"), ("best", "cgpipe, best schedule")):
        series[name] = [(cell["stages"], cell[key + "_simulated"]["speedup"]) for cell in cells]
    plot.lines(path, title, "stages", "speed-up (cgpipe: simulated)", series)


def simulated(table, cell, costs, **changes):
    """Plan and simulate an entry of published.py, with cgpipe's balance if none is given. Return
    None if the schedule is impossible for the entry."""
    changes = {"costs": costs, **changes}
    try:
        plan = cgpipe("plan", cell[1], options_of(table, cell, **changes))
    except Cgpipe:
        return None
    return {"step_seconds": plan["run_seconds_simulated"], "largest_device_bytes": largest(plan),
            "schedule": plan["schedule"], "recompute": plan["recompute"],
            "balance": plan["balance"]}


def with_speed(result, batch, baseline):
    """Add samples/s, and the speed-up over `baseline`, which is in seconds per sample. If `result`
    is None, because no plan fits, these values are None."""
    if not result:
        return {"step_seconds": None, "samples_per_second": None, "speedup": None,
                "largest_device_bytes": None, "schedule": None, "recompute": None, "balance": []}
    sample = result["step_seconds"] / batch
    return {**result, "samples_per_second": 1 / sample, "speedup": baseline / sample}


def schedules():
    lines = subprocess.run([PROGRAM, "schedule", "--list"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    return [line.split()[0] for line in lines if "no backward" not in line]


def best_of(pool, table, cell, costs):
    """Return the fastest combination of a cgpipe schedule and a recomputation mode with which all
    devices stay under the limit."""
    tried = pool.map(lambda how: simulated(table, cell, costs, schedule=how[0], recompute=how[1],
                                           balance="time"),
                     [(schedule, mode) for schedule in schedules() for mode in MODES])
    fit = [result for result in tried if result and result["largest_device_bytes"] <= LIMIT_BYTES]
    return min(fit, key=lambda result: result["step_seconds"], default=None)


def measured(table, cell, costs, first):
    """Run an entry of published.py at a small batch with cgpipe's balance. Without recomputation,
    take the fastest of 1, 2, 4 and 8 micro-batches."""
    batch = RUN["speed"]["batch"]
    asked = min(cell[3], batch)
    runs = []
    for chunks in (1, 2, 4, 8) if cell[6] == "never" else (asked,):
        options = options_of(table, cell, **RUN["speed"], chunks=chunks, balance="time",
                             costs=costs)
        try:
            runs.append((cgpipe("bench", cell[1], options)["step_seconds"], chunks))
        except Cgpipe as failure:
            print(f"{cell[0]}: {failure}", flush=True)
    if not runs:
        return None
    seconds, chunks = min(runs)
    expected = simulated(table, cell, costs, batch=batch, chunks=chunks, balance="time")
    return {"batch": batch, "chunks": chunks, "samples_per_second": batch / seconds,
            "speedup": (first or seconds) / seconds, "simulated_samples_per_second": batch
            / expected["step_seconds"], "step_seconds": seconds}


def speed_cells(table, costs):
    cells, baseline = [], None
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for cell in table["cells"]:
            report = cell_report(table, cell)
            ours = simulated(table, cell, costs)
            baseline = baseline or ours["step_seconds"] / cell[2]
            for key, result in (("published_balance", ours),
                                ("own_balance", simulated(table, cell, costs, balance="time")),
                                ("best", best_of(pool, table, cell, costs))):
                report[key + "_simulated"] = with_speed(result, cell[2], baseline)
            cells.append(report)
            print(f"{cell[0]}: {report['own_balance_simulated']['speedup']:.3f}", flush=True)
    first = None
    for cell, report in zip(table["cells"], cells):
        if not PLAN_ONLY and cell[4] <= os.cpu_count() and (m := measured(table, cell, costs,
                                                                          first)):
            first = first or m["step_seconds"]
            report["measured"] = m
    return cells


def speed(name, directory):
    table = TABLES[name]
    costs = pathlib.Path(COSTS).resolve() if COSTS else directory / "costs.json"
    if not COSTS and (os.environ.get("PROFILE") or not costs.exists()):
        options = {"batch": PROFILED[name], "chunks": 1}
        costs.write_text(json.dumps(cgpipe("profile", table["cells"][0][1], options), indent=2)
                         + "\n")
    profile = json.loads(costs.read_text())
    cells = speed_cells(table, costs)
    write(directory, "results",
          {"benchmark": name, "title": table["title"], "costs_command": profile.get("command"),
           "costs_date": profile.get("date"), "costs_samples": profile["samples"],
           "copy_bytes_per_second": profile["copy_bytes_per_second"], "cells": cells})
    if RESULTS:
        return
    speed_picture(directory / "speed-up.svg", f"{table['title'].split(',')[0]}: speed-up", cells)
    sizes = profile["samples"] if isinstance(profile["samples"], list) else [profile["samples"]]
    sizes = ", ".join(map(str, sizes))
    told = ["", f"Costs of layers: `{profile.get('command')}`, {profile.get('date')}, "
                f"micro-batches of {sizes} samples on one core; "
                f"messages at {profile['copy_bytes_per_second'] * 1e-9:.2f} GB/s, "
                "this machine's copies in memory."]
    fill(directory, "", name, speed_rows(cells) + told + measured_rows(cells)
         + picture_of("speed-up.svg"))


def write(directory, stem, report):
    directory = pathlib.Path(RESULTS) if RESULTS else directory
    (directory / f"{stem}.json").write_text(json.dumps(report, indent=2) + "\n")


# --- README ---


def picture_of(picture):
    return ["", f"![{picture.removesuffix('.svg')}]({picture})"]


def fill(directory, suffix, name, lines):
    """Replace the lines between the marks of this table in its README."""
    readme = directory / "README.md"
    begin, end = (f"<!-- {mark}{' ' + suffix if suffix else ''} -->" for mark in ("table", "end"))
    told = [begin, f"`{'PLAN_ONLY=1 ' if PLAN_ONLY else ''}bench/tables.py {name}`, "
                   f"{datetime.date.today()}:", "", *lines, end]
    text = readme.read_text()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if not re.search(pattern, text, re.S):
        sys.exit(f"{readme}: expected the marks {begin} and {end}")
    readme.write_text(re.sub(pattern, lambda _: "\n".join(told), text, count=1, flags=re.S))


def main():
    names = sys.argv[1:]
    for name in names:
        if name not in TABLES:
            sys.exit(f"{name}: expected one of {' '.join(TABLES)}")
    if not names:
        sys.exit(__doc__)
    for name in names:
        print(name, flush=True)
        (speed if name in PROFILED else memory)(name, HERE / name.removesuffix("-old"))


if __name__ == "__main__":
    main()
