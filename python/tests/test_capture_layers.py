# SPDX-License-Identifier: Apache-2.0
"""Layers of published architectures: outputs, gradients and statistics are equal to PyTorch's
results."""

import copy
import unittest

import torch_support  # noqa: F401  skips without PyTorch

import torch
from cgpipe.torch import capture
from compare import compare
from torch import nn

IMAGE, ROWS = (3, 6, 9, 8), (3, 5, 12)

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


class With(nn.Module):
    """A module that calls a function of its parameter and its inputs."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function, self.parameter = function, nn.Parameter(torch.randn(shape))

    def forward(self, *inputs):
        return self.function(self.parameter, *inputs)


# Each entry has a function of a parameter and an input, the parameter's shape, and the input's
# shape.
PARAMETERS = {
    "a class token": (lambda p, x: torch.cat([p.expand(x.shape[0], -1, -1), x], 1), [1, 1, 12],
                      ROWS),
    "a repeated token": (lambda p, x: torch.cat([x, p.repeat(x.shape[0], 2, 1)], 1), [1, 1, 12],
                         ROWS),
    "a layer scale": (lambda p, x: p * x, [12], ROWS),
    "a layer scale of channels": (lambda p, x: x * p, [6, 1, 1], IMAGE),
    "a view of a scale": (lambda p, x: p.view(1, -1, 1, 1) * x, [6], IMAGE),
    "a scale of rows": (lambda p, x: x * p, [5, 1], ROWS),
    "a scale of two dimensions": (lambda p, x: x * p, [5, 12], ROWS),
    "a number": (lambda p, x: x * p - p, [], ROWS), "one element": (lambda p, x: x + p, [1], ROWS),
    "a bias": (lambda p, x: x + p, [12], ROWS), "a bias in front": (lambda p, x: p - x, [12], ROWS),
    "a sliced table": (lambda p, x: x + p[:, :x.shape[1]], [1, 9, 12], ROWS),
    "a table of an image": (lambda p, x: x + p, [1, 6, 9, 8], IMAGE),
    "arithmetic of a parameter": (lambda p, x: x + torch.tanh(p) * p, [5, 12], ROWS),
    "a transposed weight": (lambda p, x: x @ p.t(), [7, 12], ROWS),
    "a weight transposed twice": (lambda p, x: nn.functional.linear(x, p.mT), [12, 7], ROWS),
}

FUNCTIONS = {
    "squeeze and excitation": (lambda x: x * x.mean((2, 3), keepdim=True).sigmoid(), IMAGE),
    "the mean of a row": (lambda x: x - x.mean(-1, keepdim=True), ROWS),
    "the mean of rows": (lambda x: x.mean(1, keepdim=True) * x, ROWS),
    "an outer product": (lambda x: x[:, :, :1] * x[:, :1, :], ROWS),
    "an expanded output": (lambda x: x[:, :1].expand(-1, 4, -1), ROWS),
    "stack": (lambda x: torch.stack([x, 2 * x], 1), ROWS),
    "stack of the last": (lambda x: torch.stack([x, 2 * x], -1), ROWS),
}

NORMS = {
    "layer_norm": (nn.LayerNorm(12, elementwise_affine=False), ROWS),
    "layer_norm of two": (nn.LayerNorm((5, 12), elementwise_affine=False), ROWS),
    "layer_norm without bias": (nn.LayerNorm(12, bias=False), ROWS),
    "group_norm": (nn.GroupNorm(2, 6, affine=False), IMAGE),
    "instance_norm": (nn.InstanceNorm2d(6, affine=True), IMAGE),
    "instance_norm of lengths": (nn.InstanceNorm1d(5), ROWS),
}

POOLS = {
    "max": nn.MaxPool2d(3, 2, ceil_mode=True), "average": nn.AvgPool2d(3, 2, ceil_mode=True),
    "padded": nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    "padded, not counted": nn.AvgPool2d(4, 3, 1, ceil_mode=True, count_include_pad=False),
}


class Attention(nn.Module):
    def __init__(self, batch_first, weights):
        super().__init__()
        self.inner = nn.MultiheadAttention(12, 3, batch_first=batch_first)
        self.weights = weights

    def forward(self, x):
        if not self.inner.batch_first:
            x = x.transpose(0, 1)
        y = self.inner(x, x, x, need_weights=self.weights)[0]
        return y if self.inner.batch_first else y.transpose(0, 1)


class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def test_convolutions(self):
        for name, module in CONVOLUTIONS.items():
            with self.subTest(name):
                compare(self, module.train(), torch.randn(IMAGE))

    def test_parameters(self):
        for name, (function, shape, x) in PARAMETERS.items():
            with self.subTest(name):
                compare(self, With(function, *shape), torch.randn(x))

    def test_broadcast(self):
        for name, (function, x) in FUNCTIONS.items():
            with self.subTest(name):
                compare(self, With(lambda p, x, f=function: f(x * p), 1), torch.randn(x))

    def test_rows_that_repeat_values_keep_their_layout(self):
        functions = {
            "softmax": lambda p, x: x.repeat(1, 1, 2).softmax(-1) * p + x.repeat(1, 1, 2),
            "layer_norm": lambda p, x: nn.functional.layer_norm(
                x.repeat(1, 1, 2), [24], p, p) + x.repeat(1, 1, 2),
        }
        for name, function in functions.items():
            with self.subTest(name):
                module = With(function, 24)
                capture(copy.deepcopy(module), (torch.randn(ROWS),), fallback=False)
                compare(self, module, torch.randn(ROWS))

    def test_norms_without_parameters(self):
        for name, (module, x) in NORMS.items():
            with self.subTest(name):
                compare(self, module, torch.randn(x))

    def test_pools_that_round_up(self):
        for name, module in POOLS.items():
            with self.subTest(name):
                compare(self, module, torch.randn(3, 2, 8, 9))

    def test_a_batch_norm_in_evaluation_trains_its_parameters(self):
        module = nn.Sequential(nn.Conv2d(6, 4, 1), nn.BatchNorm2d(4), nn.ReLU())
        module(torch.randn(IMAGE))
        nn.init.normal_(module[1].weight)
        nn.init.normal_(module[1].bias)
        module[1].eval()
        compare(self, module, torch.randn(IMAGE))

    def test_multihead_attention(self):
        for batch_first in (True, False):
            for weights in (True, False):
                compare(self, Attention(batch_first, weights), torch.randn(ROWS))

    def test_transformer_encoders(self):
        for norm_first in (True, False):
            layer = nn.TransformerEncoderLayer(12, 3, 16, 0.0, batch_first=True,
                                               norm_first=norm_first)
            compare(self, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
                    torch.randn(ROWS))

    def test_the_row_of_the_padding_has_no_gradient(self):
        module = nn.Sequential(nn.Embedding(7, 4, padding_idx=2), nn.Linear(4, 3))
        nn.init.normal_(module[0].weight)
        compare(self, module, torch.randint(0, 7, (6, 5)))
        self.assertEqual(float(module[0].weight.grad[2].abs().sum()), 0)


if __name__ == "__main__":
    unittest.main()
