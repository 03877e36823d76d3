#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast do torchvision's MobileNetV3 and ConvNeXt-T train if cgpipe captures them, compared with
eager PyTorch in channels-last?

    PYTHONPATH=python CGPIPE_LIBRARY=build/libcgpipe.so venv/bin/python bench/convnets.py
    ... bench/convnets.py mobilenet_v3_large --threads 1       # this one, on one core

The weights are random. Dropout and stochastic depth are 0. Each step trains on the same batch, with
SGD and momentum. A round runs eager PyTorch, then cgpipe, each in a new process. A figure is the
median of a process's steps. A ratio is the median of the rounds' ratios. `cpu` compares CPU time.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

MODELS = {"mobilenet_v3_large": 16, "convnext_tiny": 8}  # samples of a batch


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*", help=" ".join(MODELS))
    parser.add_argument("--library", choices=("eager", "cgpipe"))
    parser.add_argument("--graph", help="with --library cgpipe: save the graph in this file")
    for name, default in [("threads", 0), ("steps", 6), ("rounds", 3), ("image", 224)]:
        parser.add_argument("--" + name, type=int, default=default)
    return parser.parse_args()


def make(name):
    """Return the model, images and labels."""
    import torch
    from torchvision import models
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rates = {"dropout": 0} if name.startswith("mobilenet") else {"stochastic_depth_prob": 0}
    return (getattr(models, name)(**rates).train(),
            torch.randn(MODELS[name], 3, options.image, options.image),
            torch.randint(1000, (MODELS[name],)))


def eager(name):
    """Return a function that makes one step of eager PyTorch."""
    import torch
    model, x, y = make(name)
    model = model.to(memory_format=torch.channels_last)
    x = x.contiguous(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return step


def ours(name):
    """Return a function that makes one step of a pipeline of one stage."""
    import torch
    import cgpipe
    module, x, y = make(name)
    model = cgpipe.from_torch(module, (x,), loss=torch.nn.functional.cross_entropy,
                              example_target=y, verify=False)
    if options.graph:
        with open(options.graph, "w") as file:
            file.write(model.to_json())
    pipeline = cgpipe.Pipeline(model, batch=MODELS[name], threads=options.threads,
                               optimizer=cgpipe.SGD(lr=1e-3, momentum=0.9))
    return lambda: pipeline.step(x, y)


def measure(name):
    """Print the median time and CPU time of a step."""
    step = {"eager": eager, "cgpipe": ours}[options.library](name)
    rows = []
    for _ in range(options.steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step()
        rows.append((time.perf_counter() - wall, time.process_time() - cpu))
    print(json.dumps([statistics.median(column) for column in zip(*rows[2:])]))


def run(name, library, threads):
    words = [sys.executable, __file__, name, "--library", library, "--threads", str(threads),
             "--steps", str(options.steps), "--image", str(options.image)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    return json.loads(done.stdout.splitlines()[-1])


def main():
    print("model               cores  eager s/step  cgpipe s/step  cgpipe/eager   cpu")
    for name in options.models or MODELS:
        for threads in [options.threads] if options.threads else [1, os.cpu_count()]:
            rows = []
            for _ in range(options.rounds):
                rows.append([run(name, library, threads) for library in ("eager", "cgpipe")])
            wall, cpu = (statistics.median(r[0][i] / r[1][i] for r in rows) for i in (0, 1))
            medians = [statistics.median(r[i][0] for r in rows) for i in (0, 1)]
            print(f"{name:20}{threads:5}{medians[0]:14.3f}{medians[1]:15.3f}{wall:13.2f}x"
                  f"{cpu:6.2f}", flush=True)


options = parse()
if options.library:
    measure(options.models[0])
else:
    main()
