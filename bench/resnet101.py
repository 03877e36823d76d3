#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast does ResNet-101 train on images of 224 x 224 with one and with two stages, and how fast
does it train in PyTorch?

The names naive-1 and pipeline-1 come from torchgpipe. naive-1 is one device without recomputation,
with 1, 2, 4 or 8 micro-batches, whichever is fastest. pipeline-1 is one device with 2 micro-batches
and except_last. pipeline-2 has two devices, and the balance that cgpipe finds from measured
times."""
import os

from cases import PROGRAM, PYTHON, ROOT, SPEED, conditions, measure, options_of, report

TINY = bool(os.environ.get("TINY"))
MODEL = "resnet:depth=50,image=64,width=8" if TINY else "resnet101"
STEPS = os.environ.get("STEPS") or 5


def ours(batch=8, **options):
    options = {"batch": batch, "steps": STEPS, "schedule": "gpipe", **options}
    return [PROGRAM, "bench", MODEL, "--json", "-", *options_of(options)]


def torch(**options):
    sizes = {"depth": 50, "image": 64} if TINY else {}
    return [PYTHON, ROOT / "bench" / "resnet_torch.py",
            *options_of({"steps": STEPS, **sizes, **options})]


NAIVE = [f"naive-1 M={m}" for m in (1, 2, 4, 8)]
TORCH = ["PyTorch", "PyTorch channels-last"]
CASES = {
    **{f"naive-1 M={m}": ours(stages=1, chunks=m) for m in (1, 2, 4, 8)},
    "pipeline-1": ours(stages=1, chunks=2, recompute="except_last"),
    "pipeline-2 B=8 M=8": ours(stages=2, chunks=8, balance="time"),
    "pipeline-2 B=32 M=8": ours(batch=32, stages=2, chunks=8, balance="time"),
    "pipeline-2 B=64 M=16": ours(batch=64, stages=2, chunks=16, balance="time"),
    "PyTorch": torch(profile=1),
    "PyTorch channels-last": torch(channels_last=1, profile=1),
}


def main():
    medians = measure("resnet101", CASES)
    speed = {name: result[SPEED] for name, result in medians.items()}
    naive, peer = max(NAIVE, key=speed.get), max(TORCH, key=speed.get)
    ratios = [
        (naive, peer, "one thread each, the fastest of each"),
        ("pipeline-2 B=8 M=8", naive, "what a second stage on a second core brings"),
        ("pipeline-2 B=32 M=8", naive, "the same with four samples in a micro-batch"),
        ("pipeline-2 B=64 M=16", naive, "and with a bubble of a 17th instead of a 9th"),
        ("pipeline-1", naive, "what the published settings leave on one device"),
    ]
    width = max(map(len, CASES))
    lines = ([] if TINY else conditions(medians)) + [f"{'samples/s':>{width + 11}}"]
    lines += [f"{name:{width}} {speed[name]:10.3f}" for name in CASES] + ["", "ratios of samples/s"]
    lines += [f"{speed[above] / speed[below]:10.3f}  {above} / {below}: {meaning}"
              for above, below, meaning in ratios]
    lines += ["", "share of its time that PyTorch spends in convolutions, conversions of their "
                  "operands included: "
              + ", ".join(f"{name} {medians[name]['convolution_share']:.2f}" for name in TORCH)]
    report("resnet101", lines)


if __name__ == "__main__":
    main()
