#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/weights/gpt2-residuals: a small GPT-2 with attention residuals, defined
independently of cgpipe, and its outputs.

    python3 -m venv venv && venv/bin/pip install torch safetensors      # PyTorch 2.15
    venv/bin/python tools/reference_residuals.py [DIR]
                       # default: tests/data/weights/gpt2-residuals

    model.safetensors      random weights, seed 1, with cgpipe's names; they fit groups of any size
    expected.safetensors   `inputs` and `targets`: tokens, i32 [N, T]. For groups of G = 1, 2 and 5
                           blocks, `outputs_G`: logits, f32; and `losses_G`: f32 [10], the losses
                           of ten steps of AdamW (lr 1e-3, weight decay 0.01 only for matrices).
                           All results are computed in double, and stored as f32

Blocks and sources follow the pseudocode in Kimi Team 2026, "Attention Residuals", arXiv:2603.15031.
The sources are a list of complete groups, and the partial sum of the current group (None at the
start of the group). The first branch has only one source, so there is no query and no norm for it.
The final norm reads a weighted mean of the sources, as each branch does."""
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS, WIDTH, HEADS, VOCAB, LENGTH, INNER, EPS = 5, 12, 2, 17, 7, 16, 1e-5
SAMPLES, STEPS, GROUPS = 3, 10, (1, 2, 5)


def make():
    """Make weights that are far from their initial values, so that all of them matter."""
    torch.manual_seed(1)
    weights = {}

    def add(name, *shape):
        value = torch.randn(*shape)
        is_scale = name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight", "norm.weight"))
        weights[name] = 1 + 0.3 * value if is_scale else (0.3 if len(shape) == 1 or "query" in name
                                                          else 0.2) * value

    def add_place(name):
        add(f"{name}.norm.weight", WIDTH)
        add(f"{name}.query.weight", 1, WIDTH)

    add("transformer.wte.weight", VOCAB, WIDTH)
    add("transformer.wpe.weight", LENGTH, WIDTH)
    for i in range(LAYERS):
        h = f"transformer.h.{i}"
        if i > 0:
            add_place(f"{h}.attn_res")
        add_place(f"{h}.mlp_res")
        for name, *shape in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                             ("mlp.c_fc", WIDTH, INNER), ("mlp.c_proj", INNER, WIDTH)):
            add(f"{h}.{name}.weight", *shape)
            add(f"{h}.{name}.bias", shape[1])
        for name in ("ln_1", "ln_2"):
            add(f"{h}.{name}.weight", WIDTH)
            add(f"{h}.{name}.bias", WIDTH)
    add_place("transformer.ln_f_res")
    add("transformer.ln_f.weight", WIDTH)
    add("transformer.ln_f.bias", WIDTH)
    add("lm_head.weight", VOCAB, WIDTH)
    return weights


def mix(w, name, blocks, partial):
    """Return the mean of the sources, weighted by a softmax over the sources: the paper's
    block_attn_res."""
    sources = torch.stack(blocks + ([] if partial is None else [partial]))
    if len(sources) == 1:
        return sources[0]
    keys = sources / torch.sqrt(sources.pow(2).mean(-1, keepdim=True)
                                + EPS) * w[f"{name}.norm.weight"]
    logits = torch.einsum("d,nbtd->nbt", w[f"{name}.query.weight"][0], keys)
    return torch.einsum("nbt,nbtd->btd", logits.softmax(0), sources)


def attend(w, h, x):
    samples = x.shape[0]
    qkv = x @ w[f"{h}.attn.c_attn.weight"] + w[f"{h}.attn.c_attn.bias"]
    q, k, v = (part.view(samples, LENGTH, HEADS, WIDTH // HEADS).transpose(1, 2)
               for part in qkv.split(WIDTH, -1))
    x = (F.scaled_dot_product_attention(q, k, v, is_causal=True)
         .transpose(1, 2).reshape(samples, LENGTH, WIDTH))
    return x @ w[f"{h}.attn.c_proj.weight"] + w[f"{h}.attn.c_proj.bias"]


def feed_forward(w, h, x):
    x = F.gelu(x @ w[f"{h}.mlp.c_fc.weight"] + w[f"{h}.mlp.c_fc.bias"])
    return x @ w[f"{h}.mlp.c_proj.weight"] + w[f"{h}.mlp.c_proj.bias"]


def logits_of(w, tokens, group):
    def norm(name, x):
        return F.layer_norm(x, (WIDTH,), w[f"{name}.weight"], w[f"{name}.bias"], EPS)

    blocks, partial = [], w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"]
    for i in range(LAYERS):
        h = f"transformer.h.{i}"
        x = mix(w, f"{h}.attn_res", blocks, partial)
        if i % group == 0:
            blocks, partial = blocks + [partial], None
        y = attend(w, h, norm(f"{h}.ln_1", x))
        partial = y if partial is None else partial + y
        y = feed_forward(w, h, norm(f"{h}.ln_2", mix(w, f"{h}.mlp_res", blocks, partial)))
        partial = partial + y
    x = mix(w, "transformer.ln_f_res", blocks, partial)
    return norm("transformer.ln_f", x) @ w["lm_head.weight"].T


def train(weights, tokens, targets, group):
    w = {name: value.double().requires_grad_() for name, value in weights.items()}
    matrices = [p for p in w.values() if p.dim() > 1]
    others = [p for p in w.values() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.01},
                                   {"params": others, "weight_decay": 0.0}], lr=1e-3)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.cross_entropy(logits_of(w, tokens, group).flatten(0, 1), targets.flatten(),
                               ignore_index=-100)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def main(directory):
    weights = make()
    tokens = torch.randint(0, VOCAB, (SAMPLES, LENGTH))
    targets = torch.randint(0, VOCAB, tokens.shape)
    targets[0, :3] = -100
    expected = {"inputs": tokens.int(), "targets": targets.int()}
    for group in GROUPS:
        with torch.no_grad():
            expected[f"outputs_{group}"] = logits_of({n: v.double() for n, v in weights.items()},
                                                     tokens, group).float().contiguous()
        expected[f"losses_{group}"] = train(weights, tokens, targets, group)
    os.makedirs(directory, exist_ok=True)
    save_file(weights, os.path.join(directory, "model.safetensors"))
    save_file(expected, os.path.join(directory, "expected.safetensors"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1] if len(sys.argv) > 1
         else os.path.join(ROOT, "tests", "data", "weights", "gpt2-residuals"))
