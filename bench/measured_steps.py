#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""measured_steps.py -- compare published step times of another trainer with simulated step times.

Two rows of a published table determine two numbers: the time of a micro-batch on a stage, and a
time per step that does not depend on the micro-batches. From these numbers, `cgpipe plan` predicts
the third row. The plan has two devices and 1f1b. Its model is a table of two layers
(docs/reference/layer-tables.md) that take these times.

Source: SimuMax, docs/b200/b200_release_v1.2_summary.md, "real ms": two pipeline stages on B200.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

CHUNKS = (4, 8, 32)
STAGES = 2
#: Milliseconds of a step with 4, 8 and 32 micro-batches.
STEPS = {
    "llama3_70b, 12 layers": (843.0, 1476.8, 5436.5),
    "llama3_405b, 4 layers": (1074.6, 1935.4, 7046.4),
    "deepseekv3, ep4": (452.2, 771.6, 2718.6),
}


def simulated(program, directory, seconds, chunks):
    """Return the seconds of a step of two equal stages."""
    table = directory / "layers.csv"
    row = f"{seconds / 3:.9g},{2 * seconds / 3:.9g},4,4"
    table.write_text(
        "name,forward_seconds,backward_seconds,parameter_bytes,output_bytes\n"
        f"a,{row}\nb,{row}\n",
        encoding="utf-8",
    )
    command = [program, "plan", str(table), "--stages", str(STAGES), "--chunks", str(chunks)]
    done = subprocess.run(
        command + ["--json", "-", "--quiet"], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)["run_seconds_simulated"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--program", default="build/cgpipe")
    options = parser.parse_args()
    print("| model | measured, ms | simulated, ms | deviation |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as directory:
        for name, steps in STEPS.items():
            one = (steps[1] - steps[0]) / (CHUNKS[1] - CHUNKS[0]) / 1e3
            at = [
                1e3 * simulated(options.program, pathlib.Path(directory), one, chunks)
                for chunks in CHUNKS
            ]
            beside = steps[0] - at[0]
            at = [step + beside for step in at]
            assert all(abs(at[k] - steps[k]) < 1e-3 * steps[k] for k in (0, 1)), at
            deviation = 100 * (at[2] / steps[2] - 1)
            print(f"| {name} | {steps[2]} | {at[2]:.1f} | {deviation:+.1f} % |")


if __name__ == "__main__":
    main()
