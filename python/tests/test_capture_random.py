# SPDX-License-Identifier: Apache-2.0
"""Random small nn.Sequentials: outputs, gradients and statistics equal PyTorch's, in one stage and
in several.

CGP_TEST_SEED repeats a run; CGP_TEST_SEQUENTIALS is the number of modules [150].
"""

import os
import random
import unittest

import torch_support  # noqa: F401  skips without PyTorch

import torch
from compare import compare
from torch import nn

SEED = int(os.environ.get("CGP_TEST_SEED", random.SystemRandom().randrange(2 ** 32)))
COUNT = int(os.environ.get("CGP_TEST_SEQUENTIALS", 150))


def activation(pick):
    return pick.choice([nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.LeakyReLU, nn.Identity,
                        lambda: nn.GELU("tanh")])()


def image_layer(pick, channels):
    """Return a layer on images with ``channels`` channels."""
    kind = pick.randrange(6)
    if kind <= 1:
        return nn.Conv2d(channels, pick.randint(1, 6), pick.choice([1, 3, (1, 3)]),
                         pick.choice([1, 1, 2]), pick.choice([0, 1]), bias=pick.random() < 0.5)
    if kind == 2:
        return pick.choice([nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AvgPool2d(3, 1, 1)])
    if kind == 3:
        return pick.choice([nn.BatchNorm2d(channels), nn.GroupNorm(1, channels),
                            nn.InstanceNorm2d(channels)])
    return nn.ConvTranspose2d(channels, channels, 2, 2) if kind == 4 else nn.ZeroPad2d(1)


def image_layers(pick, channels, size):
    """Return layers on images whose result has at least 3 pixels a side."""
    layers, x = [], torch.zeros(2, channels, size, size)
    for _ in range(pick.randint(1, 4)):
        layer = image_layer(pick, x.shape[1])
        if min(x.shape[2:]) < 5 and not isinstance(layer, (nn.ZeroPad2d, nn.ConvTranspose2d)):
            continue  # the image is too small to shrink
        with torch.no_grad():
            x = layer(x)
        layers += [layer, activation(pick)]
    return layers


def build(pick):
    """Return a random module and the shape of a sample."""
    if pick.random() < 0.5:
        channels, size = pick.randint(1, 4), pick.randint(5, 9)
        layers, shape = image_layers(pick, channels, size), (channels, size, size)
        with torch.no_grad():
            made = nn.Sequential(*layers)(torch.zeros(2, *shape)).shape
        if pick.random() < 0.5:
            layers.append(nn.AdaptiveAvgPool2d(1))
            made = (*made[:2], 1, 1)
        layers += [nn.Flatten(), nn.Linear(made[1] * made[2] * made[3], pick.randint(1, 5))]
    else:
        width = pick.randint(2, 12)
        shape = (width,) if pick.random() < 0.5 else (pick.randint(1, 5), width)
        layers = []
        for _ in range(pick.randint(1, 5)):
            out = pick.randint(2, 12)
            layers.append(nn.Linear(width, out, bias=pick.random() < 0.7))
            width = out
            if pick.random() < 0.3:
                # A layer norm of two features is +-1, and its gradient is only rounding error.
                layers.append(pick.choice(
                    [nn.LayerNorm, nn.RMSNorm] if width > 2 else [nn.RMSNorm])(width))
            layers.append(activation(pick))
            if pick.random() < 0.2:
                layers.append(nn.Sequential(nn.Linear(width, width), activation(pick)))
    return nn.Sequential(*layers), shape


class Sequentials(unittest.TestCase):
    def test_they_are_pytorchs(self):
        print(f"CGP_TEST_SEED={SEED}")
        for i in range(COUNT):
            pick = random.Random(SEED + i)
            torch.manual_seed(SEED + i)
            module, shape = build(pick)
            norms = any(isinstance(m, nn.BatchNorm2d) for m in module.modules())
            chunks = 1 if norms else pick.randint(1, 4)  # a batch norm only sees its micro-batch
            stages = pick.randint(1, 3)
            with self.subTest(i=i, seed=SEED, module=str(module)):
                compare(self, module, torch.randn(pick.randint(4, 7), *shape), chunks=chunks,
                        devices=["cpu"] * stages)


if __name__ == "__main__":
    unittest.main()
