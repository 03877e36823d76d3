#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much do zero-bubble schedules gain on two devices? The case is the benchmark's GPT-2 with
batch 8 in 8 micro-batches."""
from cases import RESULTS, GPT2, SPEED, conditions, measure, ours, report

SCHEDULES = ("gpipe", "1f1b", "zb-h1", "zb-h2", "zb-v", "dualpipe-v")
KEYS = (SPEED, "bubble_measured", "bubble_simulated")


def main():
    cases = {name: ours(GPT2, stages=2, chunks=8, schedule=name, balance="flops")
             for name in SCHEDULES}
    cases["zb-h1 trace"] = ours(GPT2, stages=2, chunks=8, schedule="zb-h1", balance="flops",
                                trace=f"{RESULTS / 'zb-h1.json'},{RESULTS / 'zb-h1.svg'}")
    medians = measure("schedules", cases, KEYS)
    lines = conditions(medians) + [f"{'':10}  samples/s  to gpipe    bubble  simulated   MiB of "
                                   "activations"]
    for name in SCHEDULES:
        r = medians[name]
        lines.append(f"{name:10} {r[SPEED]:10.3f} {r[SPEED] / medians['gpipe'][SPEED]:9.3f} "
                     f"{100 * r['bubble_measured']:8.1f}% "
                     f"{100 * r['bubble_simulated']:9.1f}% "
                     f"{r['activation_bytes_total'] / 2**20:10.1f}")
    same = len({r["weights_sha256"] for r in medians.values()}) == 1
    lines += ["", "weights after the run: " + ("the same to the bit" if same else "DIFFERENT")]
    report("schedules", lines)


if __name__ == "__main__":
    main()
