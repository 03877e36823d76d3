#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast does the benchmark's GPT-2 train with one and with two stages, and how fast does it
train in every installed PyTorch?

PyTorch runs eager. If the interpreter PYTHON has PyTorch 2, it also runs compiled, and with
torch.distributed.pipelining, which uses a process per stage. Debian's PyTorch is measured too, if
it is installed."""
from cases import DEBIAN, GPT2, answer, newest, older, ours, torch

CASES = {
    "K=1 M=1": ours(GPT2, stages=1, chunks=1),
    "K=1 M=8": ours(GPT2, stages=1, chunks=8),
    "K=2 M=8": ours(GPT2, stages=2, chunks=8, balance="8,8", recompute="never"),
    "K=2 M=8 except_last": ours(GPT2, stages=2, chunks=8, balance="8,8", recompute="except_last"),
    "K=2 M=8 zb-v": ours(GPT2, stages=2, chunks=8, schedule="zb-v"),
    "K=1 M=1 T=2": ours(GPT2, stages=1, chunks=1, threads_per_device=2),
    "PyTorch M=1": torch(GPT2, chunks=1),
    "PyTorch M=8": torch(GPT2, chunks=8),
    "PyTorch M=1 T=2": torch(GPT2, chunks=1, threads=2),
    "PyTorch K=2 M=8": torch(GPT2, chunks=8, pipeline=2),
}
DISTRIBUTED = ("GPipe", "1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble",
               "DualPipeV") if newest() else ()
if newest():
    CASES["PyTorch M=1 compiled"] = torch(GPT2, chunks=1, flags=["compile"])
    CASES["PyTorch M=1 T=2 compiled"] = torch(GPT2, chunks=1, threads=2, flags=["compile"])
    CASES.update({f"pipelining {name}": torch(GPT2, chunks=8, pipeline=2, distributed=name)
                  for name in DISTRIBUTED})
if older():
    CASES["PyTorch 1.13 M=1"] = torch(GPT2, python=DEBIAN, chunks=1)
    CASES["PyTorch 1.13 M=1 T=2"] = torch(GPT2, python=DEBIAN, chunks=1, threads=2)

RATIOS = [
    ("K=1 M=8", "K=1 M=1", "what 8 micro-batches leave of the speed of one"),
    ("PyTorch M=8", "PyTorch M=1", "the same in PyTorch"),
    ("K=2 M=8", "K=1 M=8", "what a second stage on a second core brings"),
    ("K=2 M=8", "K=1 M=1", "the same, micro-batches paid for"),
    ("K=2 M=8 except_last", "K=2 M=8", "what is left with recomputation"),
    ("K=2 M=8 zb-v", "K=2 M=8", "what zero bubbles bring"),
    ("K=1 M=1 T=2", "K=1 M=1", "what a second thread in the kernels brings"),
    ("K=2 M=8", "PyTorch K=2 M=8", "two stages each; PyTorch's by hand, a thread a stage"),
]


def best(speeds, names):
    return max(names, key=speeds.get)


def judged(speeds):
    """Return the ratios to PyTorch's fastest case."""
    peers = [name for name in CASES if name.startswith("PyTorch") and "K=2" not in name]
    one, two = ([name for name in peers if ("T=2" in name) == both] for both in (False, True))
    fastest = best(speeds, ["K=1 M=1 T=2", "K=2 M=8", "K=2 M=8 zb-v"])
    found = [("K=1 M=1", best(speeds, one), "one core, PyTorch at its best"),
             (fastest, best(speeds, two + ["PyTorch K=2 M=8"]), "two cores, both at their best")]
    if DISTRIBUTED:
        found.append(("K=2 M=8 zb-v", best(speeds, [f"pipelining {name}" for name in DISTRIBUTED]),
                      "two stages, the best schedule of torch.distributed.pipelining"))
    return found


if __name__ == "__main__":
    answer("gpt2", CASES, RATIOS, judged)
