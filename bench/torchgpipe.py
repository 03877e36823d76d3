#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast is the class GPipe of cgpipe.torchgpipe, and how much memory does it take, compared with
eager PyTorch and torchgpipe?

    TORCHGPIPE_SRC=DIR PYTHON=venv/bin/python bench/torchgpipe.py
                                       (PYTHON has torch and cgpipe, or CGPIPE_LIBRARY is set)

The model is the benchmark's GPT-2 in two stages with 8 micro-batches. All cases have the same
nn.Sequential, a loss that the caller computes, and torch.optim's SGD with momentum. DIR is a
checkout of torchgpipe v0.0.7. `memory` is the largest resident memory during the steps minus the
resident memory before the model is created. `activations` is `memory` minus weights, gradients and
momentum. Neither includes memory that a process loads once for all models. A capture makes Python
import hundreds of PyTorch's modules, and `loaded` is the memory of these modules.

The exit code is 1 if a goal is missed. There are three goals: 1.5 times the speed of eager PyTorch
with the same number of micro-batches, 3 times the speed of torchgpipe, and a third of torchgpipe's
memory with except_last.
"""
import argparse
import gc
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBRARIES = ("eager", "cgpipe", "torchgpipe")


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=LIBRARIES)
    parser.add_argument("--checkpoint", default="never")
    for name, default in [("hooks", 0), ("chunks", 8), ("steps", 5), ("batch", 8), ("layers", 12),
                          ("width", 768), ("heads", 12), ("vocab", 3000), ("seq", 128),
                          ("threads", os.cpu_count())]:
        parser.add_argument("--" + name, type=int, default=default)
    return parser.parse_args()


def make_model(torch, sizes):
    nn, F = torch.nn, torch.nn.functional
    width, heads = sizes.width, sizes.heads

    class Embed(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(sizes.vocab, width)
            self.position = nn.Parameter(torch.randn(sizes.seq, width) * 0.02)

        def forward(self, x):
            return self.tokens(x) + self.position

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.c_attn, self.attn_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.c_fc, self.mlp_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def attention(self, x):
            n, t, c = x.shape
            q, k, v = (part.view(n, t, heads, c // heads).transpose(1, 2)
                       for part in self.c_attn(x).split(c, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.attn_proj(y.transpose(1, 2).reshape(n, t, c))

        def forward(self, x):
            x = x + self.attention(self.ln_1(x))
            return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))

    blocks = [Block() for _ in range(sizes.layers)]
    model = nn.Sequential(Embed(), *blocks, nn.LayerNorm(width),
                          nn.Linear(width, sizes.vocab, bias=False)).train()
    if sizes.hooks:  # a layer with a hook is run by PyTorch
        for layer in model:
            layer.register_forward_hook(lambda *_: None)
    return model


def gpipe_of(sizes):
    """Import the class GPipe that a case uses, and return it."""
    if sizes.library == "cgpipe":
        sys.path.insert(0, str(ROOT / "python"))
        from cgpipe.torchgpipe import GPipe
    else:
        sys.path.insert(0, os.environ["TORCHGPIPE_SRC"])
        from torchgpipe import GPipe
    return GPipe


def forward_of(model, sizes):
    """Return the module to run, and the number of micro-batches that the caller makes."""
    if sizes.library == "eager":
        return model, sizes.chunks
    first = len(model) // 2
    return gpipe_of(sizes)(model, [first, len(model) - first], devices=["cpu", "cpu"],
                           chunks=sizes.chunks, checkpoint=sizes.checkpoint), 1


def warm_up(torch, sizes):
    """Make PyTorch load and allocate everything that it needs only once for all steps. Make GPipe
    load everything that it needs only once for all models. So no case counts this memory."""
    nn = torch.nn
    layer = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model = layer if sizes.library == "eager" else gpipe_of(sizes)(layer, [1, 1],
                                                                   devices=["cpu", "cpu"], chunks=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    nn.functional.cross_entropy(model(torch.rand(64, 64)),
                                torch.zeros(64, dtype=torch.long)).backward()
    optimizer.step()


def case(sizes):
    """Measure one case and print a JSON line."""
    import torch_peer
    os.environ["OMP_NUM_THREADS"] = str(sizes.threads)
    import torch
    torch.set_num_threads(sizes.threads)
    torch.manual_seed(0)
    bare = torch_peer.resident_mib("VmRSS")
    warm_up(torch, sizes)
    gc.collect()
    before = torch_peer.resident_mib("VmRSS")
    model, pieces = forward_of(make_model(torch, sizes), sizes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    tokens = torch.randint(sizes.vocab, (sizes.batch, sizes.seq))
    targets = torch.randint(sizes.vocab, (sizes.batch, sizes.seq))
    seconds, losses = [], []
    for step in range(sizes.steps):
        if step == 1:
            gc.collect()
            torch_peer.begin_peak(torch, True)
        begin = time.perf_counter()
        optimizer.zero_grad()
        total = 0.0
        for x, t in zip(tokens.chunk(pieces), targets.chunk(pieces)):
            loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), t.flatten()) / pieces
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)
        seconds.append(time.perf_counter() - begin)
    median = statistics.median(seconds[2:] or seconds)
    parameters = sum(p.numel() for p in model.parameters())
    memory = torch_peer.resident_mib("VmHWM") - before
    print(json.dumps({"torch": torch.__version__, "blas": "its own BLAS", "parameters": parameters,
                      "step_seconds": median, "samples_per_second": sizes.batch / median,
                      "memory_mib": round(memory, 1),
                      "activations_mib": round(memory - 3 * 4 * parameters / 2**20, 1),
                      "loaded_mib": round(before - bare, 1),
                      "losses": [round(loss, 5) for loss in losses]}))


def main():
    import cases
    sizes = {key: cases.GPT2[key]
             for key in ("layers", "width", "heads", "vocab", "seq", "batch", "steps")}
    if "TORCHGPIPE_SRC" not in os.environ:
        sys.exit("TORCHGPIPE_SRC: the directory of torchgpipe's source is expected, nothing is set")

    def command(library, **options):
        return [cases.PYTHON, __file__, "--library", library,
                *cases.options_of({**sizes, **options})]

    known = {"eager M=1": command("eager", chunks=1), "eager M=8": command("eager")}
    for library in ("cgpipe", "torchgpipe"):
        for mode in ("never", "except_last"):
            known[f"{library} {mode}"] = command(library, checkpoint=mode)
            known[f"{library} {mode}, hooks"] = command(library, checkpoint=mode, hooks=1)
    keys = (cases.SPEED, "memory_mib", "activations_mib")
    medians = cases.measure("torchgpipe", known, keys)
    lines = cases.conditions(medians) + [f"{'':24} {'samples/s':>10} {'memory MiB':>12} "
                                         f"{'activations':>12}"]
    lines += [f"{name:24} {m[keys[0]]:10.3f} {m[keys[1]]:12.1f} {m[keys[2]]:12.1f}"
              for name, m in medians.items()]

    def ratio(key, above, below):
        return medians[above][key] / medians[below][key]

    bars = [("speed, over eager M=8", ratio(keys[0], "cgpipe never", "eager M=8"), ">=", 1.5),
            ("speed, over torchgpipe, never", ratio(keys[0], "cgpipe never", "torchgpipe never"),
             ">=", 3),
            ("speed, over torchgpipe, except_last",
             ratio(keys[0], "cgpipe except_last", "torchgpipe except_last"), ">=", 3),
            ("activations, of torchgpipe's, except_last",
             ratio(keys[2], "cgpipe except_last", "torchgpipe except_last"), "<=", 1 / 3)]
    reached = [value >= bar if sign == ">=" else value <= bar for _, value, sign, bar in bars]
    lines += ["", "speed, over eager M=1: "
              + format(ratio(keys[0], "cgpipe never", "eager M=1"), ".3f")]
    lines += [f"{name}: {value:.3f} (bar: {sign} {bar:.3g}{'' if good else ', NOT REACHED'})"
              for (name, value, sign, bar), good in zip(bars, reached)]
    cases.report("torchgpipe", lines)
    return 0 if all(reached) else 1


if __name__ == "__main__":
    parsed = parse() if "--library" in sys.argv else None
    sys.exit(case(parsed) if parsed else main())
