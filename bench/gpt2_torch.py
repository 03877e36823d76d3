#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The reference in PyTorch: train the GPT-2 of models/gpt2.c in the same way as `cgpipe bench
gpt2`.

    /usr/bin/python3 bench/gpt2_torch.py --batch 8 --chunks 1      (Debian's python3-torch)

The script runs eager PyTorch on --threads threads, or on a GPU (--device cuda). On a GPU the model
can also be compiled (--compile) and run in bf16 (--bf16). --chunks M > 1 adds up the gradients of M
micro-batches. --pipeline K runs K partitions, each on its own thread. This pipeline is written by
hand: all forwards, then all backwards, with queues between the partitions. --distributed NAME runs
K processes of torch.distributed.pipelining instead, over gloo, with schedule NAME and as many
stages as the schedule needs. --ddp K runs K processes of DistributedDataParallel over gloo, each
with a K-th of the mini-batch and of its micro-batches; gradients are reduced with the last
micro-batch. As in cgpipe, the figure is the median of all steps (--steps) except the first two.

The script prints one JSON line. `activation_mib` is the largest resident memory during the steps
minus the resident memory after the first optimizer step. At that point, weights, gradients and
momentum exist. With --ddp, `weights_differ` is the relative difference (L2 norm) between the
weights of --ddp and of one process after the same steps.
"""
import argparse
import contextlib
import copy
import io
import math
import queue
import tempfile
import threading

import torch_peer


def parse():
    parser = argparse.ArgumentParser()
    for name, default in [("threads", 1), ("batch", 8), ("chunks", 1), ("pipeline", 1),
                          ("steps", 5), ("layers", 12), ("width", 768), ("heads", 12),
                          ("vocab", 3000), ("seq", 128)]:
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--distributed", metavar="NAME",
                        help="GPipe, 1F1B, Interleaved1F1B, InterleavedZeroBubble, ZBVZeroBubble "
                             "..")
    parser.add_argument("--ddp", type=int, default=0, metavar="K")
    torch_peer.add_options(parser)
    options = parser.parse_args()
    if options.ddp and (options.chunks % options.ddp or options.device != "cpu"):
        parser.error(f"--ddp: expects --device cpu and a divisor of --chunks {options.chunks}")
    if options.pipeline > 1 and options.device != "cpu":
        parser.error(f"--pipeline: expects --device cpu, got {options.device}")
    if options.batch % options.chunks:
        parser.error(f"--chunks: expects a divisor of the batch, {options.batch}, got "
                     f"{options.chunks}")
    return options


options = parse()
blas = torch_peer.start(options)

import torch  # noqa: E402, reads variables that start() sets
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

WIDTH, HEADS = options.width, options.heads


class Position(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(options.seq, WIDTH) * 0.02)

    def forward(self, x):
        return x + self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        mask = torch.full((options.seq, options.seq), float("-inf")).triu(1)
        self.register_buffer("mask", mask, persistent=False)

    def attention(self, x):
        n, t, c = x.shape
        q, k, v = self.c_attn(x).view(n, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        if hasattr(F, "scaled_dot_product_attention"):  # PyTorch 2
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            y = F.softmax((q / math.sqrt(c // HEADS)) @ k.transpose(-1, -2) + self.mask, -1) @ v
        return self.attn_proj(y.transpose(1, 2).reshape(n, t, c))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x))))


def make_model():
    layers = [nn.Embedding(options.vocab, WIDTH), Position()]
    layers += [Block() for _ in range(options.layers)]
    layers += [nn.LayerNorm(WIDTH), nn.Linear(WIDTH, options.vocab, bias=False)]
    return nn.Sequential(*layers).train()


def loss_of(logits, targets):
    """Return the part of the mini-batch's loss that comes from one micro-batch."""
    return F.cross_entropy(logits.reshape(-1, options.vocab), targets.reshape(-1)) / options.chunks


class Serial:
    def __init__(self, forward):
        self.forward = forward

    def step(self, tokens, targets):
        total = 0.0
        for x, t in zip(tokens.chunk(options.chunks), targets.chunk(options.chunks)):
            loss = loss_of(self.forward(x), t)
            loss.backward()
            total += loss.detach()  # no float() here, which would wait for the GPU
        return float(total)


class Replica:
    """One of the processes of DistributedDataParallel, with its share of each mini-batch."""

    def __init__(self, model, rank):
        self.rank, self.first = rank, copy.deepcopy(model) if rank == 0 else None
        self.model = nn.parallel.DistributedDataParallel(model)
        self.steps = 0

    def step(self, tokens, targets):
        parts = [part.chunk(options.ddp)[self.rank].chunk(options.chunks // options.ddp)
                 for part in (tokens, targets)]
        total = torch.zeros(())
        for i, (x, t) in enumerate(zip(*parts)):
            last = i == len(parts[0]) - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = loss_of(self.model(x), t)
                (loss * options.ddp).backward()  # DDP divides the sum over the processes
            total += loss.detach()
        torch.distributed.all_reduce(total)
        self.steps += 1
        return float(total)

    def difference(self, tokens, targets):
        """Repeat the steps in one process, and return how far its weights are from this one's."""
        if self.rank != 0:
            return {}
        alone = Serial(self.first)
        optimizer = torch_peer.make_optimizer(torch, self.first)
        for _ in range(self.steps):
            optimizer.zero_grad(set_to_none=False)
            alone.step(tokens, targets)
            optimizer.step()
        pairs = list(zip(self.first.parameters(), self.model.parameters()))
        far = math.sqrt(sum(float((a - b).double().pow(2).sum()) for a, b in pairs))
        return {"weights_differ": far / math.sqrt(sum(float(a.double().pow(2).sum())
                                                      for a, _ in pairs))}


class Pipeline:
    """Partition `j` takes inputs from the queue forwards[j], and gradients of its outputs from the
    queue backwards[j]."""

    def __init__(self, model, stages):
        cuts = [len(model) * j // stages for j in range(stages + 1)]
        self.parts = [model[a:b] for a, b in zip(cuts, cuts[1:])]
        self.forwards = [queue.SimpleQueue() for _ in self.parts]
        self.backwards = [queue.SimpleQueue() for _ in self.parts]

    def run(self, j):
        last, inputs, outputs = j == len(self.parts) - 1, [], []
        for _ in range(options.chunks):
            x = self.forwards[j].get()
            inputs.append(x.requires_grad_() if j > 0 else x)
            outputs.append(self.parts[j](inputs[-1]))
            if not last:
                self.forwards[j + 1].put(outputs[-1].detach())
        for i in reversed(range(options.chunks)):
            if last:
                outputs[i] = loss_of(outputs[i], self.targets[i])
                self.total += float(outputs[i])
            torch.autograd.backward(outputs[i], None if last else self.backwards[j].get())
            if j > 0:
                self.backwards[j - 1].put(inputs[i].grad)
            inputs[i] = outputs[i] = None

    def step(self, tokens, targets):
        self.targets, self.total = targets.chunk(options.chunks), 0.0
        for x in tokens.chunk(options.chunks):
            self.forwards[0].put(x)
        threads = [threading.Thread(target=self.run, args=(j,)) for j in range(len(self.parts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.total


class Distributed:
    """The stages of the model that one process runs. All processes use the same seed."""

    def __init__(self, model, rank):
        from torch.distributed import pipelining
        self.rank, processes = rank, options.pipeline
        schedule = getattr(pipelining, "Schedule" + options.distributed)
        several = issubclass(schedule, pipelining.schedules.PipelineScheduleMulti)
        folded = "V" in options.distributed.replace("ZeroBubble",
                                                    "")  # the last stage is in the first process
        stages = processes * (2 if several else 1)
        own = [rank, 2 * processes - 1 - rank if folded else processes + rank][:2 if several else 1]
        blocks = [2 + options.layers * j // stages for j in range(stages + 1)]
        cuts = [0, *blocks[1:-1], len(model)]
        self.model = nn.ModuleList(model[cuts[j]:cuts[j + 1]] for j in own)
        made = [pipelining.PipelineStage(part, j, stages, torch.device("cpu"))
                for part, j in zip(self.model, own)]
        self.schedule = schedule(made if several else made[0], options.chunks, loss_fn=lambda y,
                                 t: loss_of(y, t) * options.chunks)
        self.last = stages - 1 in own

    def step(self, tokens, targets):
        losses = []
        self.schedule.step(*([tokens] if self.rank == 0 else []),
                           **({"target": targets, "losses": losses} if self.last else {}))
        total = torch.tensor(sum(float(loss.detach()) for loss in losses) / options.chunks)
        # Only the process of the last stage has losses. All processes get the sum of the losses.
        torch.distributed.all_reduce(total)
        return float(total)


def run_process(rank, file):
    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank,
                                         world_size=options.ddp or options.pipeline)
    run(rank)
    torch.distributed.destroy_process_group()


def run(rank=None):
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, forward = torch_peer.prepare(torch, make_model(), options)
    parameters = sum(p.numel() for p in model.parameters())
    if options.ddp:
        runner = Replica(model, rank)
        model = runner.model.module
    elif rank is not None:
        runner = Distributed(model, rank)
        model = runner.model
    else:
        runner = Pipeline(model, options.pipeline) if options.pipeline > 1 else Serial(forward)
    tokens = torch.randint(options.vocab, (options.batch, options.seq), device=options.device)
    targets = torch.randint(options.vocab, (options.batch, options.seq), device=options.device)
    with contextlib.redirect_stdout(io.StringIO()) if rank else contextlib.nullcontext():
        torch_peer.measure(torch, model, lambda: runner.step(tokens, targets), options, blas,
                           parameters=parameters,
                           more=(lambda: runner.difference(tokens, targets)) if options.ddp
                           else None)


def main():
    if not options.distributed and not options.ddp:
        run()
        return
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_process, (f"{folder}/meet",),
                                    nprocs=options.ddp or options.pipeline)


if __name__ == "__main__":
    main()
