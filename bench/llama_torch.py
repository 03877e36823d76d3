#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reference in PyTorch: train the Llama of models/llama.c in the same way as `cgpipe bench
llama`.

    PYTHON bench/llama_torch.py --batch 4 --chunks 1      (PyTorch 2.4 or newer, with F.rms_norm)

PyTorch runs on --threads threads, eager or compiled (--compile), with
F.scaled_dot_product_attention. --chunks M > 1 adds up the gradients of M micro-batches. As in
cgpipe, the figure is the median of all steps (--steps) except the first two.

The script prints one JSON line. `activation_mib` is the largest resident memory during the steps
minus the resident memory after the first optimizer step. At that point, weights, gradients and
momentum exist.
"""
import argparse

import torch_peer


def parse():
    parser = argparse.ArgumentParser()
    for name, default in [("threads", 1), ("batch", 4), ("chunks", 1), ("steps", 5), ("layers", 12),
                          ("width", 768), ("heads", 12), ("kv_heads", 4), ("inner", 2048),
                          ("vocab", 32000), ("seq", 512)]:
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=default)
    torch_peer.add_options(parser)
    options = parser.parse_args()
    if options.batch % options.chunks:
        parser.error(f"--chunks: expects a divisor of the batch, {options.batch}, got "
                     f"{options.chunks}")
    return options


options = parse()
blas = torch_peer.start(options)

import torch  # noqa: E402, reads variables that start() sets
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, HEADS, KV_HEADS = options.width, options.heads, options.kv_heads
HEAD = WIDTH // HEADS


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, cos, sin):
    """Apply rotary embeddings to x [N, H, T, D], in Hugging Face's layout."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = Norm(), Norm()
        self.q, self.k, self.v = (linear(WIDTH, WIDTH), linear(WIDTH, KV_HEADS * HEAD),
                                  linear(WIDTH, KV_HEADS * HEAD))
        self.o = linear(WIDTH, WIDTH)
        self.gate, self.up, self.down = (linear(WIDTH, options.inner),
                                         linear(WIDTH, options.inner),
                                         linear(options.inner, WIDTH))
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, HEAD, 2) / HEAD)
        angles = torch.outer(torch.arange(options.seq), frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def attention(self, x):
        n, t, c = x.shape
        q = rotate(self.q(x).view(n, t, HEADS, HEAD).transpose(1, 2), self.cos, self.sin)
        k = rotate(self.k(x).view(n, t, KV_HEADS, HEAD).transpose(1, 2), self.cos, self.sin)
        v = self.v(x).view(n, t, KV_HEADS, HEAD).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=KV_HEADS < HEADS)
        return self.o(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        y = self.norm_2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def make_model():
    layers = [nn.Embedding(options.vocab, WIDTH), *(Block() for _ in range(options.layers)), Norm(),
              linear(WIDTH, options.vocab)]
    return nn.Sequential(*layers).train()


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, forward = torch_peer.prepare(torch, make_model(), options)
    tokens = torch.randint(options.vocab, (options.batch, options.seq), device=options.device)
    targets = torch.randint(options.vocab, (options.batch, options.seq), device=options.device)

    def step():
        total = 0.0
        for x, t in zip(tokens.chunk(options.chunks), targets.chunk(options.chunks)):
            loss = F.cross_entropy(forward(x).reshape(-1, options.vocab),
                                   t.reshape(-1)) / options.chunks
            loss.backward()
            total += loss.detach()
        return float(total)

    torch_peer.measure(torch, model, step, options, blas)


main()
