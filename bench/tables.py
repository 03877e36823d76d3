#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The published tables, ours beside them: bench/tables.py resnet101-speed amoebanetd-memory ...

For each name it runs `cgpipe bench NAME`, leaves in bench/NAME/ what it printed, the same as JSON and pictures, and puts the
table into that directory's README.md. Speed-ups are simulated from bench/NAME/costs.json, which is measured first if it is
missing, or with PROFILE=1 in the environment. PLAN_ONLY=1: nothing is trained; BUILD=FOLDER: where cgpipe is built.
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys

import plot

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAM = pathlib.Path(os.environ.get("BUILD", ROOT / "build")).resolve() / "cgpipe"
GIB = 2.0**30

# What is measured for a speed table: the model, and the micro-batch of its largest pipeline.
COSTS = {
    "resnet101-speed": ("resnet:depth=101", 36),
    "amoebanetd-speed": ("amoebanetd:L=18,D=256", 40),
    "unet-speed": ("unet:B=5,C=64", 16),
}
# Options of the runs that a memory table holds against its plans, and what they are called.
MEMORY = {"amoebanetd-memory": ([], ["--old"]), "unet-memory": ([],)}


def run(arguments, text):
    """Run cgpipe in the root of the repository; what it prints goes to the file `text`."""
    print("cgpipe", *arguments, flush=True)
    with open(text, "w") as out:
        subprocess.run([PROGRAM, *arguments], stdout=out, cwd=ROOT, check=True)


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
    heading = ["", "parameters", "balance", "model GiB", "activation GiB", "all GiB", "largest device GiB"]
    heading += ["published: " + key for key in cells[0]["published"]]
    rows = []
    for cell in cells:
        for plan in cell["plans"]:
            rule = "" if cell["stages"] == 1 else f" ({plan['rule']})"
            rows.append([cell["name"], f"{plan['parameters']:,}", shown(plan["balance"]) + rule,
                         gib(plan["model_bytes"]), gib(plan["activation_bytes"]), gib(plan["planned_bytes"]),
                         gib(plan["largest_device_bytes"])] + published(cell))
    return table(heading, rows)


def run_rows(cells):
    """What ran, at its small batch, against its plan."""
    heading = ["", "batch", "micro-batches", "planned GiB", "allocated GiB", "resident GiB", "resident - planned MiB"]
    rows = [[cell["name"], str(r["batch"]), str(r["microbatches"]), gib(r["planned_bytes_total"]),
             gib(r["allocated_bytes_total"]), gib(r["resident_growth_bytes"]),
             number((r["resident_growth_bytes"] - r["planned_bytes_total"]) / 2**20, 1)]
            for cell in cells if (r := cell.get("run"))]
    return ["", "Run with a smaller batch, all else as above:", ""] + table(heading, rows) if rows else []


def memory_picture(path, title, cells):
    """Activations where they are published, otherwise all memory."""
    cells = [cell for cell in cells if cell["name"] != "baseline"]
    keys = [key for key in cells[0]["published"] if "activation" in key]
    what = "activation_bytes" if keys else "planned_bytes"
    keys = keys or list(cells[0]["published"])
    series = {("Huang et al." if "Huang" in key else "torchgpipe"):
              [(cell["stages"], cell["published"][key]) for cell in cells] for key in keys}
    for rule, name in (("published", "cgpipe, published balance"), ("size", "cgpipe, balance by size")):
        points = []
        for cell in cells:
            plans = {plan["rule"]: plan for plan in cell["plans"]}
            if rule in plans or cell["stages"] == 1:
                points.append((cell["stages"], (plans.get(rule) or cell["plans"][0])[what] / GIB))
        if len(points) == len(cells):
            series[name] = points
    plot.lines(path, title, "stages", "GiB, all devices", series)


def memory(name, directory):
    for options in MEMORY[name]:
        suffix = options[0].strip("-") if options else ""
        stem = "results" + ("-" + suffix if suffix else "")
        arguments = ["bench", name, *options, "--json", str((directory / stem).relative_to(ROOT)) + ".json"]
        if os.environ.get("PLAN_ONLY"):
            arguments.append("--plan-only")
        run(arguments, directory / f"{stem}.txt")
        report = json.loads((directory / f"{stem}.json").read_text())
        what = "activations" if "activation" in " ".join(report["cells"][0]["published"]) else "memory"
        picture = what + ("-" + suffix if suffix else "") + ".svg"
        memory_picture(directory / picture, f"{report['title'].split(',')[0]}: {what}", report["cells"])
        fill(directory, suffix, arguments, memory_rows(report["cells"]) + run_rows(report["cells"]) + picture_of(picture))


# --- speed ---


def speed_rows(cells):
    heading = ["", "batch", "chunks", "published balance: samples/s", "x", "our balance: samples/s", "x", "our balance",
               "best of our schedules", "x", "largest device GiB"]
    heading += ["published: " + key for key in cells[0]["published"]]
    rows = []
    for cell in cells:
        ours, own, best = (cell[key + "_simulated"] for key in ("published_balance", "own_balance", "best"))
        rows.append([cell["name"], str(cell["batch"]), str(cell["chunks"]), number(ours["samples_per_second"]),
                     number(ours["speedup"]), number(own["samples_per_second"]), number(own["speedup"]),
                     shown(own["balance"]), f"{best['schedule']}, {best['recompute']}", number(best["speedup"]),
                     gib(best["largest_device_bytes"])] + published(cell))
    return table(heading, rows)


def measured_rows(cells):
    heading = ["", "batch", "chunks", "measured: samples/s", "x", "simulated: samples/s"]
    rows = [[cell["name"], str(m["batch"]), str(m["chunks"]), number(m["samples_per_second"]), number(m["speedup"]),
             number(m["simulated_samples_per_second"])] for cell in cells if (m := cell.get("measured"))]
    return ["", "Measured with our balance where this machine has the cores, at a small batch:", ""] + \
        table(heading, rows) if rows else []


def speed_picture(path, title, cells):
    """Speed-up against stages; of AmoebaNet's rows those of 32 micro-batches."""
    if any(cell["name"].endswith("m32") for cell in cells):
        cells = [cell for cell in cells if cell["name"].endswith("m32")]
    else:
        cells = cells[1:]
    keys = {"x": "torchgpipe", "x Huang": "Huang et al."}
    series = {name: [(cell["stages"], cell["published"][key]) for cell in cells]
              for key, name in keys.items() if key in cells[0]["published"]}
    for key, name in (("published_balance", "cgpipe, published balance"), ("own_balance", "cgpipe, our balance"),
                      ("best", "cgpipe, best schedule")):
        series[name] = [(cell["stages"], cell[key + "_simulated"]["speedup"]) for cell in cells]
    plot.lines(path, title, "stages", "speed-up (cgpipe: simulated)", series)


def speed(name, directory):
    costs = directory / "costs.json"
    if os.environ.get("PROFILE") or not costs.exists():
        model, samples = COSTS[name]
        run(["profile", model, "--batch", str(samples), "--chunks", "1", "--repeats", "7",
             "--json", str(costs.relative_to(ROOT))], directory / "costs.txt")
    arguments = ["bench", name, "--costs", str(costs.relative_to(ROOT)),
                 "--json", str((directory / "results.json").relative_to(ROOT))]
    if os.environ.get("PLAN_ONLY"):
        arguments.append("--plan-only")
    run(arguments, directory / "results.txt")
    report = json.loads((directory / "results.json").read_text())
    speed_picture(directory / "speed-up.svg", f"{report['title'].split(',')[0]}: speed-up", report["cells"])
    told = ["", f"Costs of layers: `{report['costs_command']}`, {report['costs_date']}, "
            f"{report['costs_samples']} samples on one core; messages at {report['copy_bytes_per_second'] * 1e-9:.2f} GB/s, "
            "this machine's copies in memory."]
    fill(directory, "", arguments, speed_rows(report["cells"]) + told + measured_rows(report["cells"])
         + picture_of("speed-up.svg"))


# --- README ---


def picture_of(picture):
    return ["", f"![{picture.removesuffix('.svg')}]({picture})"]


def fill(directory, suffix, arguments, lines):
    """Put lines between the README's marks for this table."""
    readme = directory / "README.md"
    begin, end = (f"<!-- {mark}{' ' + suffix if suffix else ''} -->" for mark in ("table", "end"))
    told = [begin, f"`cgpipe {' '.join(arguments)}`, {datetime.date.today()}:", "", *lines, end]
    text = readme.read_text()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if not re.search(pattern, text, re.S):
        sys.exit(f"{readme}: expected the marks {begin} and {end}")
    readme.write_text(re.sub(pattern, lambda _: "\n".join(told), text, count=1, flags=re.S))


def main():
    names = sys.argv[1:]
    known = [*MEMORY, *COSTS]
    for name in names:
        if name not in known:
            sys.exit(f"{name}: expected one of {' '.join(known)}")
    if not names:
        sys.exit(__doc__)
    for name in names:
        (memory if name in MEMORY else speed)(name, HERE / name)


main()
