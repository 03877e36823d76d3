#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast does a Llama train, how much memory do its activations take, and how does PyTorch
compare?

The interpreter PYTHON needs PyTorch 2.4 or newer (a virtual environment with `pip install
torch`)."""
import os

from cases import PROGRAM, PYTHON, ROOT, answer, options_of, report, run, training_options

SIZES = {"layers": 12, "width": 768, "heads": 12, "kv_heads": 4, "inner": 2048, "vocab": 32000,
         "seq": 512}
if os.environ.get("TINY"):
    SIZES.update({"width": 16, "heads": 2, "kv_heads": 1, "inner": 32, "vocab": 50, "seq": 8})
RUN = {"batch": 4, "steps": int(os.environ.get("STEPS") or 5)}
MODEL = "llama:" + ",".join(f"{key}={value}" for key, value in SIZES.items())


def ours(**options):
    return [PROGRAM, "bench", MODEL, "--json", "-",
            *training_options(RUN, {"stages": 1, **options})]


def torch(*flags, **options):
    return [PYTHON, ROOT / "bench" / "llama_torch.py", *options_of({**SIZES, **RUN, **options}),
            *flags]


CASES = {
    "M=1": ours(chunks=1),
    "M=4": ours(chunks=4),
    "K=2 M=4": ours(chunks=4, stages=2),
    "PyTorch M=1": torch(chunks=1),
    "PyTorch M=4": torch(chunks=4),
}
RATIOS = [
    ("M=1", "PyTorch M=1", "one thread each"),
    ("M=4", "M=1", "what 4 micro-batches leave of the speed of one"),
    ("PyTorch M=4", "PyTorch M=1", "the same in PyTorch"),
    ("M=4", "PyTorch M=4", "one thread each, 4 micro-batches"),
    ("K=2 M=4", "M=4", "what a second stage on a second core brings"),
]


def planned_mib(**options):
    told = run([PROGRAM, "plan", MODEL, "--json", "-",
                *training_options(RUN, {"stages": 1, **options})])
    return sum(device["activation_bytes"] for device in told["devices"]) / 2**20


def main():
    medians = answer("llama", CASES, RATIOS)
    lines = ["memory of activations, MiB: ours as planned, which is what is allocated; PyTorch's "
             "as measured"]
    for chunks in (1, 4):
        lines += [f"{planned_mib(chunks=chunks, recompute=mode):10.1f}  M={chunks}, --recompute "
                  f"{mode}"
                  for mode in ("never", "never+selective", "except_last", "always+selective")]
        lines += [f"{medians[f'PyTorch M={chunks}']['activation_mib']:10.1f}  M={chunks}, PyTorch"]
    report("llama-memory", lines)


if __name__ == "__main__":
    main()
