#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The reference in PyTorch on a GPU: train the AmoebaNet-D of models/amoebanetd.c and the U-Net of
models/unet.c in the same way as `cgpipe bench`.

    python3 bench/images_torch.py --model amoebanetd --layers 18 --filters 256 --batch 96 \\
        --device cuda
    python3 bench/images_torch.py --model unet --convs 5 --channels 64 --image 192 --batch 40 \\
        --device cuda

The networks come from tools/reference_models.py, the reference of the tests, but in this script
PyTorch chooses the layout of the weights. In all other respects, the script is like
resnet_torch.py.
"""
import argparse
import pathlib
import sys

import torch_peer


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=["amoebanetd", "unet"], required=True)
    for name, default in [("threads", 1), ("batch", 8), ("chunks", 1), ("steps", 5), ("image", 224),
                          ("channels-last", 0), ("layers", 18), ("filters", 256), ("classes", 1000),
                          ("convs", 5), ("channels", 64), ("depth", 5)]:
        parser.add_argument("--" + name, type=int, default=default)
    torch_peer.add_options(parser)
    return parser.parse_args()


options = parse()
blas = torch_peer.start(options)

import torch  # noqa: E402, reads variables that start() sets
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
import reference_models  # noqa: E402

LAYOUT = torch.channels_last if options.channels_last else torch.contiguous_format


class Network(nn.Module):
    """A network of reference_models.py. It creates its modules in the order of their first use."""

    def __init__(self, forward):
        super().__init__()
        self.function, self.parts, self.at = forward, nn.ModuleList(), 0

    def part(self, make):
        if self.at == len(self.parts):
            self.parts.append(make())
        self.at += 1
        return self.parts[self.at - 1]

    def conv(self, x, out, kernel, stride=(1, 1), padding=(0, 0)):
        return self.part(lambda: nn.Conv2d(x.shape[1], out, kernel, stride, padding, bias=False))(x)

    def batch_norm(self, x):
        return self.part(lambda: nn.BatchNorm2d(x.shape[1]))(x)

    def linear(self, x, out):
        return self.part(lambda: nn.Linear(x.shape[1], out))(x)

    def forward(self, x):
        self.at = 0
        return self.function(self, x)


def make_model():
    if options.model == "unet":
        model = Network(reference_models.unet(options.convs, options.channels, options.depth))
    else:
        model = Network(reference_models.amoebanetd(options.layers // 3, options.filters,
                                                    options.classes))
    model(torch.randn(2, 3, options.image, options.image))  # this first forward creates the modules
    return model.to(memory_format=LAYOUT).train()


def loss_of(y, t):
    """Return the part of the mini-batch's loss that comes from one micro-batch."""
    loss = F.cross_entropy(y, t) if y.dim() == 2 else F.binary_cross_entropy_with_logits(y, t)
    return loss * (len(t) / options.batch)


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model, forward = torch_peer.prepare(torch, make_model(), options)
    images = torch.randn(options.batch, 3, options.image, options.image, device=options.device)
    images = images.contiguous(memory_format=LAYOUT)
    if options.model == "unet":
        targets = (torch.rand(options.batch, 1, options.image, options.image,
                              device=options.device) < 0.5).float()
    else:
        targets = torch.randint(options.classes, (options.batch,), device=options.device)

    def step():
        total = 0.0
        for x, t in zip(images.chunk(options.chunks), targets.chunk(options.chunks)):
            loss = loss_of(forward(x), t)
            loss.backward()
            total += loss.detach()  # no float() here, which would wait for the GPU
        return float(total)

    torch_peer.measure(torch, model, step, options, blas)


main()
