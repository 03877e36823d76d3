#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""megatron_layouts.py -- compare published layouts of GPT models with simulated steps.

Source: Narayanan et al. 2021, arXiv:2104.04473, table 1: the rows with tensor groups of 8 A100.
`cgpipe plan` simulates the pipeline of one replica. Assumptions:

- A tensor group is one device with 8 x 312 TFLOP/s x e. The factor e is the efficiency of kernels
  and of communication within the group: e = a / (1 + b / hidden size). The first and the last row
  determine `a` and `b`. The rows between them are predicted.
- Micro-batches have one sample, and stages have equal numbers of blocks. The published table states
  neither number.
- The schedule is interleaved. The number of stages on a device is the smallest number above one
  that divides the number of the device's blocks.
- Every block is recomputed. Messages, gradient reduction and the update take no time.

For the throughput, FLOPs are counted by equation 3 of the paper, with recomputation. All devices of
a row are equal, so the time of a step is inversely proportional to e.
"""

import argparse
import json
import subprocess

PEAK = 312e12  # FLOP/s of an A100 in fp16
GROUP = 8  # number of GPUs in a tensor group
SEQUENCE, VOCABULARY = 2048, 51200
# Parameters in 10^9, heads, hidden size, blocks, pipeline size, GPUs, batch, TFLOP/s per GPU.
ROWS = [
    (18.4, 48, 6144, 40, 1, 256, 1024, 135),
    (39.1, 64, 8192, 48, 2, 512, 1536, 138),
    (76.1, 80, 10240, 60, 4, 1024, 1792, 140),
    (145.6, 96, 12288, 80, 8, 1536, 2304, 148),
    (310.1, 128, 16384, 96, 16, 1920, 2160, 155),
    (529.6, 128, 20480, 105, 35, 2520, 2520, 163),
    (1008, 160, 25600, 128, 64, 3072, 3072, 163),
]


def flops(hidden, blocks, batch):
    """Return the FLOPs of a step, by equation 3 of the paper."""
    per_token = 96 * blocks * hidden**2
    terms = 1 + SEQUENCE / (6 * hidden) + VOCABULARY / (16 * blocks * hidden)
    return batch * SEQUENCE * per_token * terms


def balance(blocks, stages):
    """Return the number of layers of each stage, for equal numbers of blocks. The first stage also
    has two layers of embeddings, and the last stage also has the norm and the head."""
    layers = [blocks // stages] * stages
    layers[0] += 2
    layers[-1] += 2
    return ",".join(map(str, layers))


def simulate(program, row):
    """Return the seconds of a step and the bubble for e = 1, and the number of stages on a
    device."""
    _, heads, hidden, blocks, devices, gpus, batch, _ = row
    own = blocks // devices
    virtual = next(v for v in range(2, own + 1) if own % v == 0) if devices > 1 else 1
    samples = batch * GROUP * devices // gpus
    command = [
        *(program, "plan"),
        f"gpt2:layers={blocks},width={hidden},heads={heads},vocab={VOCABULARY},seq={SEQUENCE}",
        *("--stages", str(devices), "--batch", str(samples), "--chunks", str(samples)),
        *("--balance", balance(blocks, devices * virtual), "--recompute", "always"),
        *("--tflops", f"{GROUP * PEAK / 1e12:g}", "--precision", "bf16", "--quiet", "--json", "-"),
    ]
    if devices > 1:
        command += ["--schedule", "interleaved", "--virtual", str(virtual)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    plan = json.loads(done.stdout)
    return plan["run_seconds_simulated"], plan["bubble_simulated"], virtual


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/cgpipe")
    program = parser.parse_args().program
    steps = [simulate(program, row) for row in ROWS]
    # Throughput with e = 1, in TFLOP/s per GPU.
    ideal = [
        flops(row[2], row[3], row[6]) / (row[5] * step[0]) / 1e12 for row, step in zip(ROWS, steps)
    ]
    first, last = (ideal[k] / ROWS[k][7] for k in (0, -1))  # 1 / e
    b_of_a = (first - last) / (1 / ROWS[0][2] - 1 / ROWS[-1][2])  # b / a
    one_of_a = first - b_of_a / ROWS[0][2]  # 1 / a
    print("| parameters, 10^9 | GPUs | tensor x pipeline | bubble | e | simulated | published "
          "| deviation |\n|---|---|---|---|---|---|---|---|")
    for row, step, most in zip(ROWS, steps, ideal):
        e = 1 / (one_of_a + b_of_a / row[2])
        fixed = row in (ROWS[0], ROWS[-1])
        deviation = "fixed" if fixed else f"{100 * (e * most / row[7] - 1):+.1f} %"
        print(f"| {row[0]} | {row[5]} | {GROUP} x {row[4]} | {100 * step[1]:.1f} % | {e:.3f} "
              f"| {e * most:.1f} | {row[7]} | {deviation} |")


if __name__ == "__main__":
    main()
