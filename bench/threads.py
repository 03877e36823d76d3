#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What do two threads per device gain on convolutional networks, and which kinds of op are limited
by memory bandwidth?

ResNet-101, AmoebaNet-D(18,64) and U-Net(2,32) run with batch 8 on one thread and on two. Runs are
grouped by the distance between the two cores (cores.c). For each kind of op, the table has the
times of the last round on one thread and on two (`cgpipe bench --ops`). It also has the memory
bandwidth that the op would need if none of its operands were in a cache. This bandwidth is compared
with the bandwidth that two threads reach in a loop over arrays larger than the caches. An op that
reaches this bandwidth cannot run faster with any number of threads. The script needs no PyTorch."""
import ctypes
import os
import statistics
import threading
import time

from cases import PROGRAM, SPEED, machine, measure, options_of, report

STEPS = os.environ.get("STEPS") or 5
MODELS = {"ResNet-101": "resnet101", "AmoebaNet-D(18,64)": "amoebanetd:L=18,D=64",
          "U-Net(2,32)": "unet:B=2,C=32"}
if os.environ.get("TINY"):
    MODELS = {"U-Net(1,2)": "unet:B=1,C=2,depth=2,image=32"}
PARTS = ("forward_seconds", "input_seconds", "weight_seconds")


def memory_rate(threads, size=128 << 20, copies=9):
    """Return the memory bandwidth of copies of large arrays on `threads` threads: the median of the
    bytes that they read and write per second."""
    buffers = [(ctypes.create_string_buffer(size), ctypes.create_string_buffer(size))
               for _ in range(threads)]
    for pair in buffers:
        for number, buffer in enumerate(pair):
            # Write to all pages, so that each gets its own memory.
            ctypes.memset(buffer, number + 1, size)
    rates = []
    for _ in range(copies):
        workers = [threading.Thread(target=ctypes.memmove, args=(to, source, size))
                   for source, to in buffers]
        begin = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        rates.append(2 * threads * size / (time.perf_counter() - begin))
    return statistics.median(rates)


NEAR = 150  # largest round trip time, in ns, between two cores that share a last-level cache


def by_distance(one, two):
    """Yield lines with the speed-up that the second thread gives. First come runs after which the
    two cores were close to each other, then all other runs."""
    for name, is_near in (("share a cache", True), ("do not", False)):
        speeds = [speed for speed, trip in zip(two["samples"], two["round_trips"])
                  if trip and (trip < NEAR) == is_near]
        if speeds:
            yield (f"where the cores {name}, {len(speeds)} of {len(two['samples'])} runs: "
                   f"{statistics.median(speeds) / one[SPEED]:.3f}")


def table(one, two):
    """Yield a row for each kind of op. The kind that takes longest on one thread comes first."""
    yield (f"{'':18} {'ms, T=1':>10} {'ms, T=2':>10} {'T=1 / T=2':>10} "
           f"{'GB/s, T=1':>10} {'GB/s, T=2':>10}")
    others = {op["op"]: op for op in two["ops"]}
    for op in one["ops"]:
        seconds = [sum(o[part] for part in PARTS) for o in (op, others[op["op"]])]
        rates = [1e-9 * op["bytes"] / s for s in seconds]
        if seconds[0] < 0.005 * one["step_seconds"]:
            continue
        yield (f"{op['op']:18} {1e3 * seconds[0]:10.1f} {1e3 * seconds[1]:10.1f} "
               f"{seconds[0] / seconds[1]:10.2f} {rates[0]:10.1f} "
               f"{rates[1]:10.1f}")
    yield f"{'update':18} {1e3 * one['update_seconds']:10.1f} {1e3 * two['update_seconds']:10.1f}"


def main():
    cases = {f"{name} T={threads}": [PROGRAM, "bench", model, "--json", "-", "--ops",
                                     *options_of({"batch": 8, "chunks": 1, "stages": 1,
                                                  "steps": STEPS, "schedule": "gpipe",
                                                  "threads_per_device": threads})]
             for name, model in MODELS.items() for threads in (1, 2)}
    rates = {threads: memory_rate(threads) for threads in (1, 2)}
    medians = measure("threads", cases)
    lines = [*machine(medians),
             "memory, copies of large arrays, read and written: " +
             ", ".join(f"{1e-9 * rate:.1f} GB/s on {threads} thread{'s' if threads > 1 else ''}"
                       for threads, rate in rates.items())]
    for name in MODELS:
        one, two = (medians[f"{name} T={threads}"] for threads in (1, 2))
        lines += ["", f"{name}: {one[SPEED]:.3f} samples/s on one thread, {two[SPEED]:.3f} on two: "
                      f"{two[SPEED] / one[SPEED]:.3f}"]
        lines += by_distance(one, two)
        lines += table(one, two)
    report("threads", lines)


main()
