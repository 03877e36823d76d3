# SPDX-License-Identifier: Apache-2.0
"""Layers of published architectures: outputs, gradients and statistics equal PyTorch's."""

import unittest

import torch_support  # noqa: F401  skips without PyTorch

import torch
from compare import compare
from torch import nn

IMAGE = (3, 6, 9, 8)

CONVOLUTIONS = {
    "depthwise": nn.Conv2d(6, 6, 3, padding=1, groups=6),
    "depthwise, a wide kernel": nn.Conv2d(6, 6, 7, padding=3, groups=6),
    "depthwise with strides": nn.Conv2d(6, 6, (3, 5), (2, 3), 2, groups=6, bias=False),
    "depthwise and dilated": nn.Conv2d(6, 6, 3, padding="same", dilation=(2, 3), groups=6),
    "groups": nn.Conv2d(6, 9, 3, 2, 1, groups=3),
    "groups of pixels": nn.Conv2d(6, 4, 1, groups=2),
    "two outputs of each channel": nn.Conv2d(6, 12, 3, groups=6),
    "dilated": nn.Conv2d(6, 5, 3, padding=2, dilation=2),
    "dilated with strides": nn.Conv2d(6, 5, (2, 3), (3, 2), 4, dilation=(3, 4)),
    "transposed groups": nn.ConvTranspose2d(6, 4, 3, 2, 1, 1, groups=2),
    "transposed depthwise": nn.ConvTranspose2d(6, 6, (2, 3), (2, 1), groups=6),
    "transposed and dilated": nn.ConvTranspose2d(6, 4, 3, 2, dilation=2),
}


class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_convolutions(self):
        for name, module in CONVOLUTIONS.items():
            with self.subTest(name):
                compare(self, module.train(), torch.randn(IMAGE))


if __name__ == "__main__":
    unittest.main()
