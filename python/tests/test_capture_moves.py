# SPDX-License-Identifier: Apache-2.0
"""Captured ops that move or mix elements within a sample, ops on sequences and volumes, and
attention with masks. Outputs and gradients are equal to PyTorch's results, and no part falls back
to PyTorch."""

import unittest

from torch_support import Function, torch

from compare import compare, far
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.torch import CaptureError, capture
from cgpipe.torch.runtime import Options, Runtime

ROWS, IMAGE, SEQUENCE, VOLUME = (4, 5, 12), (4, 3, 6, 5), (4, 6, 9), (2, 3, 5, 6, 7)

MODULES = {
    "conv1d": (nn.Conv1d(6, 4, 3, 2, 1, groups=2), SEQUENCE),
    "conv1d same": (nn.Conv1d(6, 4, 4, padding="same", dilation=2, bias=False), SEQUENCE),
    "conv_transpose1d": (nn.ConvTranspose1d(6, 4, 3, 2, 1, 1), SEQUENCE),
    "max_pool1d": (nn.MaxPool1d(3, 2, 1, ceil_mode=True), SEQUENCE),
    "avg_pool1d": (nn.AvgPool1d(3, 2, 1), SEQUENCE),
    "adaptive_avg_pool1d": (nn.AdaptiveAvgPool1d(4), SEQUENCE),
    "conv3d": (nn.Conv3d(3, 4, 3, padding=1), VOLUME),
    "conv3d, strided": (nn.Conv3d(3, 4, (2, 3, 2), (2, 2, 3), (1, 0, 1)), VOLUME),
    "conv3d of groups, dilated": (nn.Conv3d(4, 6, 2, dilation=(1, 2, 3), groups=2),
                                  (2, 4, 4, 5, 6)),
    "conv3d of planes": (nn.Conv3d(3, 4, (1, 3, 3), stride=(2, 1, 1), bias=False), VOLUME),
    "max_pool3d": (nn.MaxPool3d((2, 3, 2), 2, (1, 1, 0), ceil_mode=True), VOLUME),
    "avg_pool3d": (nn.AvgPool3d((2, 3, 2), 2, (1, 1, 0)), VOLUME),
    "avg_pool3d, not counted": (nn.AvgPool3d(3, 2, 1, count_include_pad=False), VOLUME),
    "batch_norm3d": (nn.BatchNorm3d(3), VOLUME),
    "adaptive to more": (nn.AdaptiveAvgPool2d(7), IMAGE),
    "adaptive to 4 x 3": (nn.AdaptiveAvgPool2d((4, 3)), IMAGE),
    "adaptive 3-D": (nn.AdaptiveAvgPool3d((2, 1, 3)), VOLUME),
}

FUNCTIONS = {
    "bilinear": (lambda x: F.interpolate(x, (9, 4), mode="bilinear"), [IMAGE]),
    "bilinear, corners": (lambda x: F.interpolate(x, (3, 10), mode="bilinear", align_corners=True),
                          [IMAGE]),
    "bilinear by a scale": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), [IMAGE]),
    "bicubic": (lambda x: F.interpolate(x, (9, 4), mode="bicubic"), [IMAGE]),
    "nearest": (lambda x: F.interpolate(x, (9, 4)), [IMAGE]),
    "nearest exact": (lambda x: F.interpolate(x, (9, 4), mode="nearest-exact"), [IMAGE]),
    "linear": (lambda x: F.interpolate(x, 7, mode="linear"), [SEQUENCE]),
    "trilinear": (lambda x: F.interpolate(x, (3, 7, 9), mode="trilinear"), [VOLUME]),
    "roll": (lambda x: x.roll((2, -1), (2, 3)), [IMAGE]),
    "flip": (lambda x: x.flip(1, 3), [IMAGE]),
    "steps": (lambda x: torch.cat([x[:, 0::2], x[:, 1::3]], 1), [ROWS]),
    "steps of columns": (lambda x: x[..., 1:11:4] * x[..., 2::4], [ROWS]),
    "pad rows": (lambda x: F.pad(x, (1, 2, 0, 3)), [ROWS]),
    "pad less": (lambda x: F.pad(x, (-1, 2, 1, -2)), [IMAGE]),
    "pad channels": (lambda x: F.pad(x, (0, 0, 1, 1, 2, 0)), [IMAGE]),
    "by indices": (lambda x: x[:, torch.tensor([3, 0, -1, 3])], [ROWS]),
    "by a table of indices": (lambda x: x[:, :, torch.tensor([[3, 0], [1, 1], [2, 5]])], [ROWS]),
    "zeros like": (lambda x: torch.cat([x, torch.zeros_like(x), x.new_ones(x.shape)], 1), [ROWS]),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y, value=0.3), [ROWS, ROWS]),
    "windows": (lambda x: x.view(-1, 3, 2, 3, 5, 1).permute(0, 4, 2, 3, 1, 5).flatten(2) * 2,
                [IMAGE]),
}


#: Choices between results of a layer, which are finite.
CHOICES = {
    "where": (lambda x: torch.where(torch.arange(12) % 3 == 0, x, -2.0), [ROWS]),
    "where of two": (lambda x, y: torch.where(torch.arange(5)[:, None] < 3, x, y), [ROWS, ROWS]),
    "masked_fill": (lambda x: x.masked_fill(torch.arange(12) % 3 == 0, 4.0), [ROWS]),
}


class AfterLayer(nn.Module):
    def __init__(self, function, width):
        super().__init__()
        self.function, self.layer = function, nn.Linear(width, width)

    def forward(self, *inputs):
        return self.function(*(self.layer(x) for x in inputs))


class Attention(nn.Module):
    """Attention between tokens, with a mask that ``mask(tokens, kept)`` computes from the
    tokens."""

    def __init__(self, mask, kv_heads=4):
        super().__init__()
        self.mask, self.heads, self.kv_heads = mask, 4, kv_heads
        self.words, self.qkv = nn.Embedding(20, 16), nn.Linear(16, 16 + 8 * kv_heads)

    def forward(self, ids, kept):
        x = self.qkv(self.words(ids))
        q, k, v = (y.unflatten(-1, (-1, 4)).transpose(1, 2)
                   for y in x.split([16, 4 * self.kv_heads, 4 * self.kv_heads], -1))
        y = F.scaled_dot_product_attention(q, k, v, self.mask(ids, kept),
                                           enable_gqa=self.kv_heads < 4)
        return y.transpose(1, 2).flatten(2)


def causal(ids):
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()


MASKS = {
    "keys": lambda ids, kept: (kept != 0)[:, None, None],
    "keys, added": lambda ids, kept: (1.0 - kept[:, None, None]) * -10000.0,
    "rows without a key": lambda ids, kept: (kept != 0)[:, None, None] & causal(ids),
    "a bias": lambda ids, kept: torch.arange(36.0).view(1, 1, 6, 6) / 9,
    "the same for a half": lambda ids, kept: (torch.arange(6) < 3)[None],
    "a constant without a key": lambda ids, kept: torch.arange(6)[:, None] > torch.arange(6),
}


class Moves(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(4)

    def captured(self, module, *inputs):
        self.assertFalse(capture(module, inputs, verify=False).regions.all)
        compare(self, module, *inputs)

    def test_modules_equal_pytorch(self):
        for name, (module, shape) in MODULES.items():
            with self.subTest(name):
                self.captured(module, torch.randn(shape))

    def test_functions_equal_pytorch(self):
        for name, (function, shapes) in FUNCTIONS.items():
            with self.subTest(name):
                self.captured(Function(function), *[torch.randn(shape) for shape in shapes])

    def test_choices_equal_pytorch(self):
        for name, (function, shapes) in CHOICES.items():
            with self.subTest(name):
                self.captured(AfterLayer(function, shapes[0][-1]),
                              *[torch.randn(shape) for shape in shapes])

    def test_ties_of_a_pool_give_the_gradient_to_the_first(self):
        x, pool, found = torch.randint(0, 2, VOLUME).float(), nn.MaxPool3d(2, 1), []
        weight = torch.randn(2, 3, 4, 5, 6)
        for module in (pool, Runtime(pool, Options())):
            given = x.clone().requires_grad_()
            (module(given) * weight).sum().backward()
            found.append(given.grad)
        self.assertLess(far(*found), 1e-6)

    def test_attention_takes_any_mask(self):
        kept = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]])
        for name, mask in MASKS.items():
            for heads in (4, 2):
                with self.subTest(name, heads=heads):
                    self.captured(Attention(mask, heads), torch.randint(0, 20, (4, 6)), kept)

    def test_a_computed_mask_may_be_infinite_in_whole_rows(self):
        class Biased(Attention):
            """Adds a learned bias for each head and place. As in T5, a key that is not kept gets
            ``hidden`` besides."""

            def __init__(self, hidden, heads):
                super().__init__(None, heads)
                self.table, self.hidden = nn.Embedding(11, 4), hidden
                del self.mask

            def mask(self, ids, kept):
                places = torch.arange(6)[:, None] - torch.arange(6) + 5
                added = torch.zeros(kept.shape).masked_fill(kept == 0, self.hidden)
                return self.table(places).permute(2, 0, 1)[None] + added[:, None, None]
        kept = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0], [0] * 6, [0, 1, 1, 1, 1, 0]])
        for hidden in (-float("inf"), torch.finfo(torch.float32).min, -1e4):
            for heads in (4, 2):
                with self.subTest(hidden, heads=heads):
                    self.captured(Biased(hidden, heads), torch.randint(0, 20, (4, 6)), kept)

    def test_a_table_of_relative_positions_is_a_parameter(self):
        class Bias(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Parameter(torch.randn(9, 2))
                self.ids = torch.arange(5)[:, None] - torch.arange(5)

            def forward(self, x):
                return x[:, None] + self.table[self.ids].permute(2, 0, 1)
        self.captured(Bias(), torch.randn(3, 5, 5))

    def test_a_parameter_is_repeated_more_often_than_an_op_repeats(self):
        class Gain(nn.Module):
            def __init__(self):
                super().__init__()
                self.gain = nn.Parameter(torch.tensor(0.3))

            def forward(self, x):
                return x * self.gain
        self.captured(Gain(), torch.randn(2, 3, 2048))

    def test_two_encoder_layers_with_padding(self):
        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.words = nn.Embedding(20, 16)
                self.layer = nn.TransformerEncoderLayer(16, 4, 24, 0.0, batch_first=True)

            def forward(self, ids, kept):
                return self.layer(self.words(ids), src_key_padding_mask=kept == 0)
        kept = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
        self.captured(Encoder(), torch.randint(0, 20, (3, 4)), kept)

    def test_inputs_that_are_views_are_captured_and_run(self):
        class Words(nn.Embedding):
            def forward(self, ids):
                return super().forward(ids.view(-1, 6))
        words = module = Words(20, 20)
        ids = torch.randint(0, 20, (4, 7))
        model = cgpipe.from_torch(module, (ids[:, :-1],), example_target=ids[:, 1:],
                                  loss=lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten()))
        want = F.cross_entropy(words(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).detach()
        with cgpipe.Pipeline(model, batch=4, optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            self.assertAlmostEqual(pipeline.step(ids[:, :-1], ids[:, 1:]), float(want), 5)

    def test_inputs_by_name_are_given_with_a_loss(self):
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = nn.Linear(5, 3)

            def forward(self, x, scale=None):
                return self.linear(x if scale is None else x * scale)
        module, x, scale, y = Scaled(), torch.randn(4, 5), torch.randn(4, 5), torch.arange(4) % 3
        want = float(F.cross_entropy(module(x, scale=scale), y).detach())
        model = cgpipe.from_torch(module, (x,), {"scale": scale}, loss=F.cross_entropy,
                                  example_target=y)
        with cgpipe.Pipeline(model, batch=4, optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            self.assertAlmostEqual(pipeline.step(x, scale, y), want, 5)

    def test_an_object_with_tensors_in_an_output_cannot_be_used(self):
        class Cache:
            def __init__(self, keys):
                self.keys = keys

        class Cached(nn.Linear):
            def forward(self, x):
                return super().forward(x), Cache([x * 2])
        module = Cached(5, 3)
        captured = capture(module, (torch.randn(4, 5),))
        y, cache = captured.unflatten([torch.zeros(4, 3)])
        self.assertEqual(far(y, torch.zeros(4, 3)), 0)
        self.assertIn("Cache", repr(cache))
        with self.assertRaisesRegex(CaptureError, "Cache: a captured module returns tensors"):
            cache.keys


if __name__ == "__main__":
    unittest.main()
