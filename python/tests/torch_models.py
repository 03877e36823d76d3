# SPDX-License-Identifier: Apache-2.0
"""The models of torchgpipe's benchmarks as nn.Sequential modules: ResNet-101, AmoebaNet-D, and a
U-Net with skips."""

from collections import OrderedDict

import torch
from torch import nn

from cgpipe.torchgpipe.skip import Namespace, pop, skippable, stash

# --- ResNet-101 ---


@skippable(stash=["identity"])
class Keep(nn.Module):
    """Stash the input of a block for the block's Residual layer."""

    def forward(self, x):
        yield stash("identity", x)
        return x  # noqa: B901


@skippable(pop=["identity"])
class Residual(nn.Module):
    """Add the stashed input of the block. ``downsample`` converts it to the shape of the result."""

    def __init__(self, downsample=None):
        super().__init__()
        self.downsample = downsample

    def forward(self, x):
        identity = yield pop("identity")
        return x + (identity if self.downsample is None
                    else self.downsample(identity))  # noqa: B901


def resnet(blocks=(3, 4, 23, 3), width=64, classes=1000):
    """Return a ResNet with bottlenecks as a flat nn.Sequential; each block is 11 layers."""
    layers = [("conv1", nn.Conv2d(3, width, 7, 2, 3, bias=False)), ("bn1", nn.BatchNorm2d(width)),
              ("relu", nn.ReLU()), ("maxpool", nn.MaxPool2d(3, 2, 1))]
    channels = width
    for stage, count in enumerate(blocks):
        for block in range(count):
            planes, stride = width << stage, 2 if stage and not block else 1
            layers += _bottleneck(f"layer{stage + 1}_{block}", channels, planes, stride)
            channels = 4 * planes
    layers += [("avgpool", nn.AdaptiveAvgPool2d(1)), ("flatten", nn.Flatten()),
               ("fc", nn.Linear(channels, classes))]
    return nn.Sequential(OrderedDict(layers))


def _bottleneck(name, channels, planes, stride):
    down = None
    if stride != 1 or channels != 4 * planes:
        down = nn.Sequential(nn.Conv2d(channels, 4 * planes, 1, stride, bias=False),
                             nn.BatchNorm2d(4 * planes))
    space = Namespace()
    parts = [Keep().isolate(space), nn.Conv2d(channels, planes, 1, bias=False),
             nn.BatchNorm2d(planes), nn.ReLU(), nn.Conv2d(planes, planes, 3, stride, 1, bias=False),
             nn.BatchNorm2d(planes), nn.ReLU(), nn.Conv2d(planes, 4 * planes, 1, bias=False),
             nn.BatchNorm2d(4 * planes), Residual(down).isolate(space), nn.ReLU()]
    return [(f"{name}_{i}", part) for i, part in enumerate(parts)]


# --- U-Net ---


@skippable(stash=["skip"])
class Stash(nn.Module):
    """Stash the result of a level for the level's PopCat layer."""

    def forward(self, x):
        yield stash("skip", x)
        return x  # noqa: B901


@skippable(pop=["skip"])
class PopCat(nn.Module):
    """Concatenate the stashed result of a level and the input. First, zeros at the bottom and right
    of the input bring it to the size of the stashed result."""

    def forward(self, x):
        skip = yield pop("skip")
        down, right = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        if down or right:
            x = nn.functional.pad(x, (0, right, 0, down))
        return torch.cat([x, skip], 1)  # noqa: B901


def _stack(layers, convs, channels, middle, out, dropout):
    for i in range(convs):
        to = out if i == convs - 1 else middle
        layers += [nn.Conv2d(channels, to, 3, padding=1, bias=False), nn.Dropout2d(dropout),
                   nn.InstanceNorm2d(to), nn.LeakyReLU(0.01)]
        channels = to


def unet(convs=2, base=32, depth=5, dropout=0.1):
    """Return a U-Net of ``depth`` levels as a flat nn.Sequential; each convolution is 4 layers."""
    layers, spaces = [], [Namespace() for _ in range(depth)]
    for i in range(depth):
        c = base << i
        _stack(layers, convs, c // 2 if i else 3, c, c, dropout)
        layers += [Stash().isolate(spaces[i]), nn.MaxPool2d(2)]
    c = base << depth
    _stack(layers, convs, c // 2, c, c // 2, dropout)
    for i in reversed(range(depth)):
        c = base << i
        layers += [nn.Upsample(scale_factor=2), PopCat().isolate(spaces[i])]
        _stack(layers, convs, 2 * c, c // 2, c // 2, dropout)
    layers.append(nn.Conv2d(base // 2, 1, 1, bias=False))
    return nn.Sequential(*layers)


# --- AmoebaNet-D ---


def _relu_conv(channels, out, kernel=1, stride=1, padding=0):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(channels, out, kernel, stride, padding, bias=False),
                         nn.BatchNorm2d(out))


class FactorizedReduce(nn.Module):
    """Halve an image by two convolutions with stride 2. The second convolution's input is shifted
    by a pixel."""

    def __init__(self, channels, out):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.conv2 = nn.Conv2d(channels, out // 2, 1, 2, bias=False)
        self.bn = nn.BatchNorm2d(out)

    def forward(self, x):
        x = self.relu(x)
        shifted = nn.functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        return self.bn(torch.cat([self.conv1(x), self.conv2(shifted)], 1))


def _operation(name, c, stride):
    if name == "none":
        return nn.Identity() if stride == 1 else FactorizedReduce(c, c)
    if name == "average":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if name == "max":
        return nn.MaxPool2d(2, stride)
    if name == "1x1":
        return _relu_conv(c, c, 1, stride)
    inner = [_relu_conv(c, c // 4)]
    if name == "3x3":
        inner.append(_relu_conv(c // 4, c // 4, 3, stride, 1))
    else:
        inner += [_relu_conv(c // 4, c // 4, (1, 7), (1, stride), (0, 3)),
                  _relu_conv(c // 4, c // 4, (7, 1), (stride, 1), (3, 0))]
    return nn.Sequential(*inner, _relu_conv(c // 4, c))


NORMAL = ([("1x1", 1), ("average", 1), ("none", 1), ("1x7", 0), ("1x1", 0), ("1x7", 0),
           ("average", 2), ("none", 2), ("average", 1), ("1x1", 5)],
          [0, 3, 4, 6])
REDUCTION = ([("max", 0), ("average", 0), ("none", 2), ("3x3", 1), ("1x7", 2), ("average", 2),
              ("none", 3), ("max", 1), ("average", 2), ("1x1", 3)],
             [4, 5, 6])


class Cell(nn.Module):
    """An AmoebaNet cell: five sums of two operations each. It takes the results of the two previous
    cells. It returns its own result and the previous cell's result."""

    def __init__(self, before, previous, c, reduces, reduced_before):
        super().__init__()
        operations, self.joined = REDUCTION if reduces else NORMAL
        self.reduce1 = _relu_conv(previous, c)
        self.reduce2 = (FactorizedReduce(before, c) if reduced_before else nn.Identity()
                        if before == c else _relu_conv(before, c))
        self.indices = [index for _, index in operations]
        self.operations = nn.ModuleList(_operation(name, c, 2 if reduces and index < 2 else 1)
                                        for name, index in operations)

    def forward(self, states):
        s1, s2 = states if isinstance(states, tuple) else (states, states)
        skip, found = s1, [self.reduce1(s1), self.reduce2(s2)]
        for i in range(0, len(self.operations), 2):
            a, b = (self.operations[j](found[self.indices[j]]) for j in (i, i + 1))
            found.append(a + b)
        return torch.cat([found[i] for i in self.joined], 1), skip


class Classify(nn.Module):
    """Pool the last cell's result, and compute logits."""

    def __init__(self, channels, classes, size):
        super().__init__()
        self.pool, self.flatten, self.fc = (
            nn.AvgPool2d(size), nn.Flatten(), nn.Linear(channels, classes))

    def forward(self, states):
        return self.fc(self.flatten(self.pool(states[0])))


def amoebanetd(layers=18, width=208, classes=1000, pool=7):
    """Return AmoebaNet-D(layers, width), which has three groups of normal cells."""
    found = [("stem1", nn.Sequential(nn.ReLU(), nn.Conv2d(3, width // 4, 3, 2, 1, bias=False),
                                     nn.BatchNorm2d(width // 4)))]
    c = before = previous = width // 4
    reduced = False

    def add(name, reduces):
        nonlocal c, before, previous, reduced
        c *= 2 if reduces else 1
        cell = Cell(before, previous, c, reduces, reduced)
        found.append((name, cell))
        before, previous, reduced = previous, c * len(cell.joined), reduces
    add("stem2", True)
    add("stem3", True)
    for group in range(3):
        if group:
            add(f"cell{2 * group}_reduction", True)
        for i in range(layers // 3):
            add(f"cell{2 * group + 1}_normal{i + 1}", False)
    found.append(("classify", Classify(previous, classes, pool)))
    return nn.Sequential(OrderedDict(found))


def count(module):
    """Return the number of parameters."""
    return sum(p.numel() for p in module.parameters())
