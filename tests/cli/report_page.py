#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks and files for test_report.sh.

    report_page.py page FILE.html FILE.json SECTION..   check a page, and compare it with --json
    report_page.py plant FILE.json SLOWNESS LATENCY     replace the measured step by a simulated one

`plant` gives each layer a time in proportion to its FLOPs, times SLOWNESS (a number for each
device, separated by commas). A message takes LATENCY times the F of stage 0. Both devices are on
hosts and ranks of their own.
"""
import json
import re
import sys
import xml.etree.ElementTree

MOST_BYTES, MOST_SCRIPT = 1000000, 10240


def numbers(value):
    """Yield all numbers of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def check_page(path, json_path, sections):
    text = open(path, encoding="utf-8").read()
    root = xml.etree.ElementTree.fromstring(text.split("\n", 1)[1])  # fails if not well-formed
    data = root.find(".//script[@id='data']").text
    report = json.load(open(json_path, encoding="utf-8"))
    problems = []
    if json.loads(data) != report:
        problems.append("the JSON of the page differs from --json")
    known = set(numbers(report))
    shown = [element.get("value") for element in root.iter("data")]
    problems += [f"{value} is not in --json" for value in shown if float(value) not in known]
    if not shown:
        problems.append("the page shows no numbers")
    if len(text.encode()) > MOST_BYTES:
        problems.append(f"the page has {len(text.encode())} bytes")
    script = max((s.text or "" for s in root.iter("script") if s.get("id") != "data"), key=len)
    if len(script.encode()) > MOST_SCRIPT:
        problems.append(f"the script has {len(script.encode())} bytes")
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    for pattern in (r"https?:", r"\bsrc=", r"\bhref=", r"@import", r"<link", r"url\((?!#)"):
        if re.search(pattern, outside) or re.search(pattern, script):
            problems.append(f"a reference to another file: {pattern}")
    there = {element.get("class") for element in root.iter("section")}
    problems += [f"no section {name}" for name in sections if name not in there]
    print("".join(f"# {problem}\n" for problem in problems), end="")
    return 1 if problems else 0


def lists_of(measured):
    """Return the lists of a lowered schedule: (kind, stage, micro-batch, edge)."""
    lists = []
    for row in measured["csv"].splitlines():
        actions = []
        for cell in filter(None, row.split(",")):
            stage, kind, number = re.fullmatch(r"(\d+)([FBIWR])(\d+)", cell).groups()
            stage, number = int(stage), int(number)
            back = kind in "BI"
            edges = [(e, a, b) for e, (a, b) in enumerate(measured["edges"])
                     if kind in "FBI" and (a > b) == back]
            actions += [("RECV", stage, number, e) for e, _, to in edges if to == stage]
            actions.append((kind, stage, number, -1))
            actions += [("SEND", stage, number, e) for e, start, _ in edges if start == stage]
        lists.append(actions)
    return lists


def simulate(lists, seconds, latency):
    """Return start, end, given and ready of every action."""
    sent, free = {}, [0.0] * len(lists)
    times = [[[] for _ in lists] for _ in range(4)]
    position = [0] * len(lists)
    while any(position[d] < len(lists[d]) for d in range(len(lists))):
        for d, actions in enumerate(lists):
            while position[d] < len(actions):
                kind, stage, number, edge = actions[position[d]]
                start, given = free[d], 0.0
                if kind == "RECV" and (edge, number) not in sent:
                    break
                if kind == "RECV":
                    given = sent[edge, number] + latency
                    end = max(start, given)
                elif kind == "SEND":
                    end = sent[edge, number] = start
                else:
                    end = start + seconds[stage][kind]
                ready = end if kind == "RECV" else start
                for k, time in enumerate((start, end, given, ready)):
                    times[k][d].append(time)
                free[d] = end
                position[d] += 1
    return times


def plant(path, slowness, latency):
    data = json.load(open(path, encoding="utf-8"))
    step, layers, first = data["cgpipe"], data["costs"]["layers"], 0
    seconds = []
    for stage, count in enumerate(data["balance"]):
        times = dict.fromkeys("FIW", 0.0)
        for layer in layers[first:first + count]:
            for kind, name in zip("FIW", ("forward", "input", "weight")):
                time = layer[name + "_flops"][0] * 1e-9 * slowness[stage % len(slowness)]
                layer[name + "_seconds"] = [time]
                times[kind] += time
            layer["recompute_seconds"] = layer["forward_seconds"]
            layer["selective_seconds"] = [0.0]
        times["B"], times["R"] = times["I"] + times["W"], times["F"]
        seconds.append(times)
        first += count
    keys = ("start_seconds", "end_seconds", "given_seconds", "ready_seconds")
    lists = lists_of(step)
    for key, times in zip(keys, simulate(lists, seconds, latency * seconds[0]["F"])):
        step[key] = times
    data["places"] = [{"host": f"node{d}", "rank": d, "cores": "0-7"} for d in range(len(lists))]
    data["ranks"], data["update_seconds"] = len(lists), 0.0
    json.dump(data, open(path, "w", encoding="utf-8"))
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "page":
        sys.exit(check_page(sys.argv[2], sys.argv[3], sys.argv[4:]))
    sys.exit(plant(sys.argv[2], [float(x) for x in sys.argv[3].split(",")], float(sys.argv[4])))
