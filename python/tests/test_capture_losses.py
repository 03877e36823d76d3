# SPDX-License-Identifier: Apache-2.0
"""Captured losses: three steps of SGD over micro-batches equal PyTorch's over the mini-batch."""

import copy
import unittest

import torch_support  # noqa: F401  skips without PyTorch

import torch
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.errors import ArgumentError
from cgpipe.torch import CaptureError

N = 8


def net(width=3):
    return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, width))


def of_images():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 3, 1))


ROWS, IMAGES = (N, 6), (N, 3, 6, 5)


class Losses(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def compare(self, loss, target, module=None, shape=ROWS, precision="f32", bound=1e-5):
        """Train a module by PyTorch and by a pipeline of two stages and uneven micro-batches."""
        module = module or net()
        theirs, x = copy.deepcopy(module), torch.randn(shape)
        model = cgpipe.from_torch(module, (x,), loss=loss, example_target=target, fallback=False)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        with cgpipe.Pipeline(model, stages=2, chunks=3, batch=N, precision=precision,
                             optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            for _ in range(3):
                optimizer.zero_grad()
                expected = loss(theirs(x), target)
                expected.backward()
                optimizer.step()
                got = pipeline.step(x, target)
                self.assertLessEqual(abs(got - float(expected)), bound * abs(float(expected)))
            for a, b in zip(module.parameters(), theirs.parameters()):
                self.assertLessEqual(float((a - b).norm()), bound * float(b.norm()))

    def refused(self, loss, target, text, module=None):
        with self.assertRaisesRegex(CaptureError, text):
            cgpipe.from_torch(module or net(), (torch.randn(ROWS),), loss=loss,
                              example_target=target, fallback=False)

    def test_losses_of_elements(self):
        for loss in (nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(beta=0.2), nn.HuberLoss(delta=0.3)):
            with self.subTest(loss=loss):
                self.compare(loss, torch.rand(N, 3))
        self.compare(nn.MSELoss(), torch.rand(N, 3, 4, 3), of_images(), IMAGES)
        self.compare(nn.HuberLoss(delta=0.3), torch.rand(N, 3), precision="bf16", bound=0.03)

    def test_targets_of_other_shapes(self):
        self.compare(nn.MSELoss(), torch.randn(N, 1))
        self.compare(nn.MSELoss(), torch.randn(N), nn.Sequential(net(1), nn.Flatten(0)))
        self.refused(nn.MSELoss(), torch.randn(N), "loss: .*expansion over the samples", net(1))

    def test_either_side_may_have_the_gradient(self):
        self.compare(lambda y, t: F.mse_loss(t, y), torch.randn(N, 3))
        self.compare(lambda y, t: F.huber_loss(y[:, :1] + t, y[:, 1:2]), torch.randn(N, 1))
        self.compare(lambda y, t: F.l1_loss(y, (2 * y).detach() + t), torch.randn(N, 3))

    def test_sums_of_losses(self):
        target = torch.randint(0, 3, (N,))
        self.compare(lambda y, t: F.cross_entropy(y, t) + 0.3 * F.cross_entropy(2 * y, t), target)
        self.compare(lambda y, t: sum([F.mse_loss(y, t) / 3, F.huber_loss(y, t, delta=0.4) * 2]),
                     torch.randn(N, 3))
        self.refused(lambda y, t: F.mse_loss(y, t) + 1, torch.randn(N, 3), "a sum of losses")
        self.refused(lambda y, t: -0.5 * F.mse_loss(y, t), torch.randn(N, 3),
                     "a loss times a number above 0")
        self.refused(lambda y, t: F.mse_loss(y, t) ** 2, torch.randn(N, 3), "a loss at the end")

    def test_cross_entropy(self):
        classes = torch.randint(0, 3, (N,))
        weights, pixels = torch.tensor([0.2, 1.5, 3.0]), torch.randint(0, 3, (N, 4, 3))
        pixels[:, 1] = 255
        pixels[:3, 2:] = 255  # uneven micro-batches have other sums of weights
        for loss in (nn.CrossEntropyLoss(label_smoothing=0.2), nn.CrossEntropyLoss(weights),
                     nn.CrossEntropyLoss(weights, reduction="sum")):
            with self.subTest(loss=loss):
                self.compare(loss, classes)
        for loss in (nn.CrossEntropyLoss(weights, ignore_index=255),
                     nn.CrossEntropyLoss(ignore_index=255, label_smoothing=0.1)):
            with self.subTest(loss=loss):
                self.compare(loss, pixels, of_images(), IMAGES)
        self.compare(nn.CrossEntropyLoss(weights), classes, precision="bf16", bound=0.03)
        self.refused(nn.CrossEntropyLoss(weights, label_smoothing=0.1), classes,
                     "either weights or label smoothing")
        self.refused(nn.CrossEntropyLoss(reduction="none"), classes, "reduction mean or sum")
        self.refused(nn.BCEWithLogitsLoss(pos_weight=weights), torch.rand(N, 3), "without weights")

    def test_weights_over_accumulated_steps(self):
        x, target = torch.randn(ROWS), torch.randint(0, 3, (N,))
        target[0], target[3] = 1, 2
        loss, module = nn.CrossEntropyLoss(torch.tensor([0.0, 1.5, 3.0])), net()
        theirs = copy.deepcopy(module)
        model = cgpipe.from_torch(module, (x,), loss=loss, example_target=target)
        with cgpipe.Pipeline(model, stages=2, chunks=2, batch=N,
                             optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            pipeline.step(x[:3], target[:3], update=False)
            pipeline.step(x[3:], target[3:])
            with self.assertRaisesRegex(ArgumentError, "weights with a sum above 0, got 0"):
                pipeline.step(x, torch.zeros(N, dtype=torch.long))
        (loss(theirs(x[:3]), target[:3]) + loss(theirs(x[3:]), target[3:])).backward()
        torch.optim.SGD(theirs.parameters(), lr=0.1).step()
        for a, b in zip(module.parameters(), theirs.parameters()):
            self.assertLessEqual(float((a - b).norm()), 1e-5 * float(b.norm()))

    def test_targets_of_another_type(self):
        self.refused(nn.MSELoss(), torch.randn(N, 3).double(),
                     "example_target: float32 is expected")
        self.refused(nn.MSELoss(), torch.randint(0, 3, (N, 3)), "arithmetic on integers")
        x, target = torch.randn(ROWS), torch.randn(N, 3)
        model = cgpipe.from_torch(net(), (x,), loss=nn.MSELoss(), example_target=target)
        with cgpipe.Pipeline(model, batch=N, optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            with self.assertRaisesRegex(ArgumentError, r"input 1: \[N, 3\] is expected"):
                pipeline.step(x, torch.randn(N, 4))
            with self.assertRaisesRegex(TypeError, "argument 1: float32 is expected"):
                pipeline.step(x, torch.randint(0, 3, (N, 3)))
            self.assertGreater(pipeline.step(x, target), 0)


if __name__ == "__main__":
    unittest.main()
