#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do two replicas gain on two cores, as threads and over MPI, and what does PyTorch's
DistributedDataParallel (gloo, two processes) gain?

All cases train on a mini-batch of 16 samples. M is the number of micro-batches of the mini-batch.
The cases of cgpipe have 8 gradient groups, so their weights are equal to the bit. LAYERS=8 and
WIDTH=512 change the model."""
import os
import shutil

from cases import GPT2, answer, newest, ours, torch

SIZES = {**GPT2, "batch": 16}
for name in ("layers", "width"):
    SIZES[name] = int(os.environ.get(name.upper()) or SIZES[name])
CGPIPE = {"stages": 1, "chunks": 8, "gradient_groups": 8}
LAUNCHER = ["mpirun", "--oversubscribe", "-n", "2"]

CASES = {
    "one": ours(SIZES, **CGPIPE),
    "2 threads": ours(SIZES, **CGPIPE, replicas=2),
    "2 threads, sharded": [*ours(SIZES, **CGPIPE, replicas=2), "--shard-optimizer"],
}
RATIOS = [
    ("2 threads", "one", "two replicas as threads"),
    ("2 threads, sharded", "one", "the same, with a sharded optimizer"),
]
if shutil.which("mpirun"):
    CASES["2 processes"] = [*LAUNCHER, *ours(SIZES, **CGPIPE, replicas=2)]
    CASES["2 processes, sharded"] = [*CASES["2 processes"], "--shard-optimizer"]
    RATIOS += [("2 processes", "one", "two replicas over MPI"),
               ("2 processes, sharded", "one", "the same, with a sharded optimizer")]
if newest():
    CASES["DDP M=2"] = torch(SIZES, chunks=2, ddp=2)
    CASES["DDP M=8"] = torch(SIZES, chunks=8, ddp=2)
    CASES["PyTorch M=8"] = torch(SIZES, chunks=8)
    best = "2 processes" if "2 processes" in CASES else "2 threads"
    RATIOS += [("DDP M=8", "PyTorch M=8", "what DDP gains"),
               (best, "DDP M=2", "against DDP with one micro-batch a process"),
               (best, "DDP M=8", "against DDP with as many micro-batches (no_sync)")]

if __name__ == "__main__":
    medians = answer("replicas", CASES, RATIOS)
    for case in ("DDP M=2", "DDP M=8"):
        if case in medians:
            print(f"{case}: its weights differ by {medians[case]['weights_differ']:.1e} from those "
                  "of one process; cgpipe's by 0")
