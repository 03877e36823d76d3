#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The reference in PyTorch: train the ResNet of models/resnet.c in the same way as `cgpipe bench`.

    /usr/bin/python3 bench/resnet_torch.py --batch 8 --image 224      (Debian's python3-torch)

The script runs eager PyTorch on --threads threads, or on a GPU (--device cuda), where --compile is
possible too. --channels-last 1 selects the channels-last layout. --chunks M > 1 adds up the
gradients of M micro-batches. As in cgpipe, the figure is the median of all steps (--steps) except
the first two. The script prints one JSON line. With --profile 1, the line also has the fraction of
a step's time that convolutions take.
"""
import argparse

import torch_peer


def parse():
    parser = argparse.ArgumentParser()
    for name, default in [("threads", 1), ("batch", 8), ("chunks", 1), ("steps", 5), ("depth", 101),
                          ("classes", 1000), ("image", 224), ("channels-last", 0), ("profile", 0)]:
        parser.add_argument("--" + name, type=int, default=default)
    torch_peer.add_options(parser)
    options = parser.parse_args()
    if options.depth not in BLOCKS:
        parser.error(f"--depth: expects one of {' '.join(map(str, BLOCKS))}, got {options.depth}")
    return options


BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
options = parse()
blas = torch_peer.start(options)

import torch  # noqa: E402, reads variables that start() sets
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, planes, 1), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = conv(planes, planes, 3, stride), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = conv(planes, 4 * planes, 1), nn.BatchNorm2d(4 * planes)
        self.downsample = None
        if stride != 1 or inputs != 4 * planes:
            self.downsample = nn.Sequential(conv(inputs, 4 * planes, 1, stride),
                                            nn.BatchNorm2d(4 * planes))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        return F.relu(y, inplace=True)


def make_model():
    layers = [conv(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for group, blocks in enumerate(BLOCKS[options.depth]):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, 64 << group, 2 if group > 0 and block == 0 else 1))
            inputs = 256 << group
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(inputs, options.classes)).train()


def main():
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model, forward = torch_peer.prepare(torch, make_model().to(memory_format=layout), options)
    images = torch.randn(options.batch, 3, options.image, options.image, device=options.device)
    images = images.contiguous(memory_format=layout)
    labels = torch.randint(options.classes, (options.batch,), device=options.device)

    def step():
        total = 0.0
        for x, t in zip(images.chunk(options.chunks), labels.chunk(options.chunks)):
            loss = F.cross_entropy(forward(x), t) * len(t) / options.batch
            loss.backward()
            total += loss.detach()  # no float() here, which would wait for the GPU
        return float(total)

    def profiled():
        with torch.autograd.profiler.profile() as profile:
            step()
        events = [event for event in profile.key_averages()]
        whole = sum(event.self_cpu_time_total for event in events)
        convolutions = sum(event.self_cpu_time_total for event in events
                           if "conv" in event.key.lower())
        return {"convolution_share": round(convolutions / whole, 3)}

    torch_peer.measure(torch, model, step, options, blas, profiled if options.profile else None)


main()
