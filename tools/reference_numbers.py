#!/usr/bin/python3
"""Make tests/data/reference_numbers.json: losses of PyTorch for a small GPT-2, to compare ours with.

    apt-get install -y python3-torch                    # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_numbers.py [FILE]  # default: tests/data/reference_numbers.json

Nothing is random: parameters and tokens are formulas of an index, exact in double, so that a test in C makes the same.

    hash(p, i):  h = (i * 2654435761 + (p + 1) * 2246822519) mod 2^32
                 h = h xor (h >> 15)
                 h = h * 2654435761 mod 2^32

    parameter p, element i (row-major):  float32((hash(p, i) / 2^32 - 0.5) * 0.2); to the weights of layer norms 1 is
                                         added, in float32
    tokens[s][b][t]  = hash(1000, (s * B + b) * T + t) mod V
    targets[s][b][t] = hash(1001, (s * B + b) * T + t) mod V

The parameters p = 0, 1, ... are those of the list `parameters`, in its order. The model, x [B, T, C]:

    x = wte[tokens] + wpe
    L times:  x = x + c_proj(attention(c_attn(ln_1(x))));  x = x + mlp.c_proj(gelu(c_fc(ln_2(x))))
    loss = mean over B T of cross_entropy(ln_f(x) lm_head^T, targets)

Weights of blocks are stored [in, out] (y = x W + b), lm_head [V, C] without bias and not tied to wte. Layer norm has
eps 1e-5, GELU is the one with erf, attention is causal: softmax(q k^T / sqrt(C / heads)) v, with q, k, v the thirds of
c_attn's output. No dropout.

Each optimizer starts from the same parameters and takes 10 steps with weight decay on every parameter. `losses` are those
of the forward before the update, `sum_abs` is the sum of |w| (in double) of each parameter after the last. Both come
in float32 (what we compare with) and in float64 (how far float32 may be off). One thread.

Do not compare the sums of attn.c_attn.bias under AdamW more closely than 1e-3: its middle third, the bias of k, has no
gradient (softmax does not see it), and AdamW makes steps of size lr out of what rounding leaves.
"""
import json
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F

CONFIG = {"layers": 2, "width": 32, "heads": 4, "vocabulary": 61, "sequence": 16, "batch": 6, "steps": 10}
OPTIMIZERS = {
    "sgd": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
    "adamw": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01},
}
LAYERS, WIDTH, HEADS, VOCABULARY, SEQUENCE, BATCH, STEPS = CONFIG.values()


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
    shapes.update({"ln_f.weight": [WIDTH], "ln_f.bias": [WIDTH], "lm_head.weight": [VOCABULARY, WIDTH]})
    return shapes


def initial_parameters(dtype):
    parameters = {}
    for p, (name, shape) in enumerate(parameter_shapes().items()):
        u = hashes(p, math.prod(shape)).astype(np.float64) / 2.0**32 - 0.5
        values = (u * 0.2).astype(np.float32)
        if ".ln_" in "." + name and name.endswith(".weight"):
            values += np.float32(1)
        parameters[name] = torch.from_numpy(values.reshape(shape)).to(dtype).requires_grad_()
    return parameters


def all_batches(p):
    values = hashes(p, STEPS * BATCH * SEQUENCE) % np.uint64(VOCABULARY)
    return torch.from_numpy(values.astype(np.int64).reshape(STEPS, BATCH, SEQUENCE))


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


def train(kind, dtype):
    w = initial_parameters(dtype)
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[kind]
    optimizer = make(list(w.values()), **OPTIMIZERS[kind])
    tokens, targets = all_batches(1000), all_batches(1001)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(w, tokens[step], targets[step])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [value.detach().double().abs().sum().item() for value in w.values()]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data", "reference_numbers.json")
    torch.set_num_threads(1)
    result = {
        "about": "made by tools/reference_numbers.py, which has the formulas",
        "torch": torch.__version__,
        "config": CONFIG,
        "parameters": [{"name": name, "shape": shape} for name, shape in parameter_shapes().items()],
    }
    worst = 0.0
    for kind, options in OPTIMIZERS.items():
        run = result[kind] = {"options": options}
        for bits, dtype in (("float32", torch.float32), ("float64", torch.float64)):
            losses, sums = train(kind, dtype)
            run[bits] = {"losses": losses, "sum_abs": sums}
        difference = max(abs(a - b) / abs(b) for a, b in zip(run["float32"]["losses"], run["float64"]["losses"]))
        sums = max(abs(a - b) / abs(b) for a, b in zip(run["float32"]["sum_abs"], run["float64"]["sum_abs"]))
        print(f"{kind}: loss {run['float64']['losses'][0]:.6f} to {run['float64']['losses'][-1]:.6f}; largest relative "
              f"difference of float32 to float64: losses {difference:.2e}, sums of |w| {sums:.2e}")
        worst = max(worst, difference)
    print(f"largest relative difference of losses: {worst:.2e}")
    with open(path, "w", encoding="ascii") as file:
        json.dump(result, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
