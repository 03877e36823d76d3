#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/reference_numbers.json: PyTorch's losses for a small GPT-2. Tests compare the
losses of cgpipe with them.

    apt-get install -y python3-torch                    # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_numbers.py [FILE]  # default: tests/data/reference_numbers.json

Nothing is random: parameters and tokens are formulas of an index, exact in double, so that a test
in C can make the same numbers.

    hash(p, i):  h = (i * 2654435761 + (p + 1) * 2246822519) mod 2^32
                 h = h xor (h >> 15)
                 h = h * 2654435761 mod 2^32

    parameter p, element i (row-major):  float32((hash(p, i) / 2^32 - 0.5) * 0.2);
                                         weights of layer norms: plus 1, in float32
    tokens[s][b][t]  = hash(1000, (s * B + b) * T + t) mod V
    targets[s][b][t] = hash(1001, (s * B + b) * T + t) mod V

The list `parameters` gives the order of the parameters p = 0, 1, ... The model, x [B, T, C]:

    x = wte[tokens] + wpe
    L times:  x = x + c_proj(attention(c_attn(ln_1(x))));  x = x + mlp.c_proj(gelu(c_fc(ln_2(x))))
    loss = mean over B T of cross_entropy(ln_f(x) lm_head^T, targets)

Weights of blocks are stored [in, out] (y = x W + b); lm_head is [V, C], without bias and not tied
to wte. Layer norm has eps 1e-5, and GELU uses erf. Attention is causal: softmax(q k^T / sqrt(C /
heads)) v, where q, k, v are the thirds of c_attn's output. There is no dropout.

Each run starts from the same parameters. `losses` are computed by the forward before each update,
and `norms` (with clip_norm) are the norms of all gradients before clipping. `sum_abs` is the sum of
|w| (in double) of each parameter after the last update. All results are given in float32 (for the
comparison) and in float64 (to show the error of float32). One thread is used.

A run has these options besides PyTorch's own:

    optimizer  sgd, adamw, adam, rmsprop
    steps      updates, t = 1 .. steps
    decay_all  true: weight decay on every parameter; false: not on norms and biases
    clip_norm  torch.nn.utils.clip_grad_norm_ before each update
    schedule   the rate of update t is lr times factor(t): t / warmup while t < warmup;
               then, with s = t - warmup,
               constant  1
               cosine    least + (1 - least) (1 + cos(pi min(1, s / (steps - warmup)))) / 2
               step      factor^floor(s / interval)

Except with SGD, do not compare the sums of attn.c_attn.bias more closely than 1e-3. Its middle
third, the bias of k, has no gradient, because softmax cancels it. The other optimizers turn the
remaining rounding errors into steps of size lr."""
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

CONFIG = {"layers": 2, "width": 32, "heads": 4, "vocabulary": 61, "sequence": 16, "batch": 6}
LAYERS, WIDTH, HEADS, VOCABULARY, SEQUENCE, BATCH = CONFIG.values()

COSINE = {"kind": "cosine", "warmup": 5, "steps": 30, "least": 0.1}
STEP = {"kind": "step", "warmup": 4, "interval": 10, "factor": 0.5}
RUNS = {
    "sgd": {"optimizer": "sgd", "steps": 10, "lr": 0.05, "momentum": 0.9, "nesterov": True,
            "weight_decay": 1e-4, "decay_all": True},
    "adamw": {"optimizer": "adamw", "steps": 10, "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8,
              "weight_decay": 0.01, "decay_all": True},
    "adamw_clipped": {"optimizer": "adamw", "steps": 30, "lr": 1e-3, "betas": [0.9, 0.999],
                      "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 0.9, "schedule": COSINE},
    "sgd_clipped": {"optimizer": "sgd", "steps": 30, "lr": 0.1, "momentum": 0.9,
                    "weight_decay": 1e-3, "clip_norm": 0.7, "schedule": COSINE},
    "adam": {"optimizer": "adam", "steps": 30, "lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8,
             "weight_decay": 0.01, "schedule": STEP},
    "rmsprop": {"optimizer": "rmsprop", "steps": 30, "lr": 1e-3, "alpha": 0.99, "eps": 1e-8,
                "weight_decay": 0.01, "schedule": STEP},
    "rmsprop_momentum": {"optimizer": "rmsprop", "steps": 30, "lr": 2e-4, "alpha": 0.99,
                         "eps": 1e-8, "momentum": 0.9, "weight_decay": 0.01, "schedule": STEP},
}
OURS = ("optimizer", "steps", "decay_all", "clip_norm", "schedule")
OPTIMIZERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, "adam": torch.optim.Adam,
              "rmsprop": torch.optim.RMSprop}


def hashes(p, count):
    index = np.arange(count, dtype=np.uint64)
    h = (index * np.uint64(2654435761) + np.uint64((p + 1) * 2246822519)) & np.uint64(0xFFFFFFFF)
    h ^= h >> np.uint64(15)
    return (h * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)


def parameter_shapes():
    shapes = {"wte.weight": [VOCABULARY, WIDTH], "wpe.weight": [SEQUENCE, WIDTH]}
    for layer in range(LAYERS):
        for name, shape in {
            "ln_1.weight": [WIDTH], "ln_1.bias": [WIDTH],
            "attn.c_attn.weight": [WIDTH, 3 * WIDTH], "attn.c_attn.bias": [3 * WIDTH],
            "attn.c_proj.weight": [WIDTH, WIDTH], "attn.c_proj.bias": [WIDTH],
            "ln_2.weight": [WIDTH], "ln_2.bias": [WIDTH],
            "mlp.c_fc.weight": [WIDTH, 4 * WIDTH], "mlp.c_fc.bias": [4 * WIDTH],
            "mlp.c_proj.weight": [4 * WIDTH, WIDTH], "mlp.c_proj.bias": [WIDTH],
        }.items():
            shapes[f"h.{layer}.{name}"] = shape
    shapes.update({"ln_f.weight": [WIDTH], "ln_f.bias": [WIDTH],
                   "lm_head.weight": [VOCABULARY, WIDTH]})
    return shapes


def is_norm(name):
    return ".ln_" in "." + name


def initial_parameters(dtype):
    parameters = {}
    for p, (name, shape) in enumerate(parameter_shapes().items()):
        u = hashes(p, math.prod(shape)).astype(np.float64) / 2.0**32 - 0.5
        values = (u * 0.2).astype(np.float32)
        if is_norm(name) and name.endswith(".weight"):
            values += np.float32(1)
        parameters[name] = torch.from_numpy(values.reshape(shape)).to(dtype).requires_grad_()
    return parameters


def all_batches(p, steps):
    values = hashes(p, steps * BATCH * SEQUENCE) % np.uint64(VOCABULARY)
    return torch.from_numpy(values.astype(np.int64).reshape(steps, BATCH, SEQUENCE))


def layer_norm(w, name, x):
    return F.layer_norm(x, [WIDTH], w[name + ".weight"], w[name + ".bias"], 1e-5)


def conv1d(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def attention(w, name, x):
    head = WIDTH // HEADS
    q, k, v = [part.view(BATCH, SEQUENCE, HEADS, head).transpose(1, 2)
               for part in conv1d(w, name + ".c_attn", x).split(WIDTH, dim=-1)]
    scores = q @ k.transpose(-1, -2) / math.sqrt(head)
    future = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
    mixed = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return conv1d(w, name + ".c_proj", mixed.transpose(1, 2).reshape(BATCH, SEQUENCE, WIDTH))


def loss_of(w, tokens, targets):
    x = F.embedding(tokens, w["wte.weight"]) + w["wpe.weight"]
    for layer in range(LAYERS):
        h = f"h.{layer}"
        x = x + attention(w, h + ".attn", layer_norm(w, h + ".ln_1", x))
        inner = F.gelu(conv1d(w, h + ".mlp.c_fc", layer_norm(w, h + ".ln_2", x)))
        x = x + conv1d(w, h + ".mlp.c_proj", inner)
    logits = layer_norm(w, "ln_f", x) @ w["lm_head.weight"].T
    return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def factor_at(schedule, t):
    if t < schedule["warmup"]:
        return t / schedule["warmup"]
    s = t - schedule["warmup"]
    if schedule["kind"] == "cosine":
        share = min(1, s / (schedule["steps"] - schedule["warmup"]))
        return schedule["least"] + (1 - schedule["least"]) * (1 + math.cos(math.pi * share)) / 2
    return schedule["factor"] ** (s // schedule["interval"])


def make_optimizer(w, options):
    theirs = {key: value for key, value in options.items() if key not in OURS}
    spared = [] if options.get("decay_all") else [n for n in w if is_norm(n) or n.endswith(".bias")]
    groups = [{"params": [w[n] for n in w if n not in spared]}]
    if spared:
        groups.append({"params": [w[n] for n in spared], "weight_decay": 0.0})
    return OPTIMIZERS[options["optimizer"]](groups, **theirs)


def train(options, dtype):
    w = initial_parameters(dtype)
    optimizer = make_optimizer(w, options)
    tokens, targets = (all_batches(p, options["steps"]) for p in (1000, 1001))
    losses, norms = [], []
    for step in range(options["steps"]):
        optimizer.zero_grad()
        loss = loss_of(w, tokens[step], targets[step])
        loss.backward()
        if "clip_norm" in options:
            norms.append(torch.nn.utils.clip_grad_norm_(list(w.values()),
                                                        options["clip_norm"]).item())
        if "schedule" in options:
            for group in optimizer.param_groups:
                group["lr"] = options["lr"] * factor_at(options["schedule"], step + 1)
        optimizer.step()
        losses.append(loss.item())
    result = {"losses": losses,
              "sum_abs": [value.detach().double().abs().sum().item() for value in w.values()]}
    return {**result, "norms": norms} if norms else result


def difference(run, key):
    return max(abs(a - b) / abs(b) for a, b in zip(run["float32"][key], run["float64"][key]))


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data",
                                                              "reference_numbers.json")
    torch.set_num_threads(1)
    result = {
        "about": "made by tools/reference_numbers.py, which has the formulas",
        "torch": torch.__version__,
        "config": CONFIG,
        "parameters": [{"name": name, "shape": shape}
                       for name, shape in parameter_shapes().items()],
    }
    worst = 0.0
    for name, options in RUNS.items():
        run = result[name] = {"options": options}
        for bits, dtype in (("float32", torch.float32), ("float64", torch.float64)):
            run[bits] = train(options, dtype)
        losses, norms = run["float64"]["losses"], run["float64"].get("norms")
        print(f"{name}: loss {losses[0]:.6f} to {losses[-1]:.6f}; "
              "largest relative difference of float32 to float64: "
              f"losses {difference(run, 'losses'):.2e}, "
              f"sums of |w| {difference(run, 'sum_abs'):.2e}")
        if norms:
            clipped = sum(norm > options["clip_norm"] for norm in norms)
            print(f"    {clipped} of {len(norms)} updates are clipped, "
                  f"norms {min(norms):.3f} to {max(norms):.3f}, "
                  f"float32 to float64 {difference(run, 'norms'):.2e}")
        worst = max(worst, difference(run, "losses"))
    print(f"largest relative difference of losses: {worst:.2e}")
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
