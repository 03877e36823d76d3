# SPDX-License-Identifier: Apache-2.0
"""The report: a table, JSON, and a line about the kernels' last run on a GPU."""
import json

import machine

FINAL = ("passed", "failed", "measured", "not run")
OF_A_PART = ("date", "commit", "driver", "toolkit")  # facts of the call that ran a part


def kept(results, name):
    """Return a part's saved JSON; {} if there is none."""
    at = results / f"{name}.json"
    return json.loads(at.read_text()) if at.exists() else {}


def so_far(cells):
    """Return lines for the cells of an unfinished part: speeds, and output of tests."""
    lines = []
    for name, cell in cells.items():
        if isinstance(cell, dict) and "samples_per_second" in cell:
            lines.append(f"{name}: {cell['samples_per_second']:,.1f} samples/s")
        elif isinstance(cell, str):
            lines.append(f"{'' if cell in ('passed', 'clean') else 'FAILED '}{name}: {cell}")
    return lines


def goal_line(goal):
    sign = "at most" if goal["at_most"] else "at least"
    return (f"{'met' if goal['met'] else 'MISSED'}: {goal['text']}: {goal['value']:.3f}, to be "
            f"{sign} {goal['bound']:g}")


def print_table(facts, parts):
    print()
    for key in ("device", "driver", "toolkit", "torch", "commit", "kernels_tree", "date"):
        print(f"{key:13} {facts[key] or '-'}")
    if facts["backend"] != "cuda":
        print("no GPU: small models, no speeds")
    print(f"\n{'part':13} {'verdict':13} {'s':>6}")
    for name, part in parts.items():
        print(f"{name:13} {part['verdict']:13} {part.get('seconds', 0):6.1f}")
        for line in part["lines"] + [goal_line(goal) for goal in part["goals"]]:
            print(f"    {line}")


def write(check, names, directory, wanted):
    """Print and write the report of all parts so far. Return the exit code."""
    nothing = {"verdict": "left", "lines": [], "goals": []}
    parts = {name: {**nothing, **kept(check.results, name)} for name in names}
    shown = {name: part for name, part in parts.items() if not wanted or name in [*wanted, "build"]}
    left = [name for name, part in shown.items() if part["verdict"] not in FINAL]
    print_table(check.facts, shown)
    directory.mkdir(parents=True, exist_ok=True)
    at = directory / f"gpu_check.{machine.slug(check.facts['device'])}.json"
    for part in parts.values():
        part.pop("cells", None)
        part.pop("part", None)
    at.write_text(json.dumps({**check.facts, "parts": parts}, indent=1) + "\n")
    print(f"\n{at}")
    if any(part["verdict"] == "failed" for part in shown.values()):
        return 1
    if left:
        print(f"left: {' '.join(left)} (call again)")
    return 3 if left else 0
