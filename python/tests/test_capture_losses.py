# SPDX-License-Identifier: Apache-2.0
"""Captured losses: three steps of SGD over micro-batches equal three steps of PyTorch over the
mini-batch."""

import copy
import unittest
import warnings

import torch_support  # skips without PyTorch

import torch
from torch import nn
from torch.nn import functional as F

import cgpipe
from cgpipe.errors import ArgumentError, CgpipeError
from cgpipe.torch import CaptureError

N = 8


def net(width=3):
    return nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, width))


def of_images():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Conv2d(4, 3, 1))


class Penalized(nn.Module):
    """A module that returns a loss. It adds a penalty on the weights once, not for each sample."""

    def __init__(self):
        super().__init__()
        self.net, self.shift = net(), nn.Parameter(torch.randn(3))

    def forward(self, x):
        return (self.net(x) + self.shift).square().mean() + 0.1 * self.shift.square().sum()


ROWS, IMAGES = (N, 6), (N, 3, 6, 5)


class Losses(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def compare(self, loss, target, module=None, shape=ROWS, precision="f32", bound=1e-5,
                fallback=False, chunks=3):
        """Train a module by PyTorch and by a pipeline with two stages and micro-batches of unequal
        size."""
        module = module or net()
        theirs, x = copy.deepcopy(module), torch.randn(shape)
        model = cgpipe.from_torch(module, (x,), loss=loss, example_target=target,
                                  fallback=fallback)
        optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
        with cgpipe.Pipeline(model, stages=min(2, len(model.layers)), chunks=chunks, batch=N,
                             precision=precision, optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            for _ in range(3):
                optimizer.zero_grad()
                expected = loss(theirs(x), target)
                expected.backward()
                optimizer.step()
                got = pipeline.step(x, target)
                self.assertLessEqual(abs(got - float(expected)), bound * abs(float(expected)))
            for a, b in zip(module.parameters(), theirs.parameters()):
                self.assertLessEqual(float((a - b).norm()), bound * float(b.norm()))

    def compare_if_new(self, loss, target):
        """Call compare(). With an older version of PyTorch, the loss may be refused instead."""
        try:
            self.compare(loss, target, fallback=not torch_support.IS_NEW)
        except CaptureError as error:
            self.assertFalse(torch_support.IS_NEW, error)
            self.assertRegex(str(error), "a certain number|cannot be traced")

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
        self.refused(lambda y, t: F.mse_loss(y, t, reduction="sum") / (y.shape[0] + 1),
                     torch.randn(N, 3), "number of samples")
        self.refused(lambda y, t: -0.5 * F.mse_loss(y, t), torch.randn(N, 3),
                     "a loss times a number above 0")
        self.refused(lambda y, t: F.mse_loss(y, t) ** 2, torch.randn(N, 3), "a loss at the end")

    def test_cross_entropy(self):
        classes = torch.randint(0, 3, (N,))
        weights, pixels = torch.tensor([0.2, 1.5, 3.0]), torch.randint(0, 3, (N, 4, 3))
        pixels[:, 1] = 255
        pixels[:3, 2:] = 255  # so micro-batches have unequal sums of weights
        for loss in (nn.CrossEntropyLoss(label_smoothing=0.2), nn.CrossEntropyLoss(weights),
                     nn.CrossEntropyLoss(weights, reduction="sum")):
            with self.subTest(loss=loss):
                self.compare(loss, classes)
        for loss in (nn.CrossEntropyLoss(weights, ignore_index=255),
                     nn.CrossEntropyLoss(ignore_index=255, label_smoothing=0.1)):
            with self.subTest(loss=loss):
                self.compare(loss, pixels, of_images(), IMAGES)
        self.compare(nn.CrossEntropyLoss(weights), classes, precision="bf16", bound=0.03)

    def test_a_single_target_that_counts_has_its_weight(self):
        loss = nn.CrossEntropyLoss(torch.tensor([0.2, 1.5, 3.0]), ignore_index=1)
        target = torch.tensor([0, 1, 1, 1, 1, 1, 1, 1])
        module, x = net(), torch.randn(ROWS)
        model = cgpipe.from_torch(module, (x,), loss=loss, example_target=target, verify=False)
        with cgpipe.Pipeline(model, batch=N, chunks=2) as pipeline:
            self.assertAlmostEqual(pipeline.evaluate(x, target),
                                   float(loss(module(x), target).detach()), 5)

    def test_weights_with_label_smoothing(self):
        classes, weights = torch.randint(0, 3, (N,)), torch.tensor([0.2, 0.7, 3.0])
        classes[:4] = torch.tensor([0, 1, 2, 1])
        for reduction in ("mean", "sum"):
            self.compare(nn.CrossEntropyLoss(weights, label_smoothing=0.1, reduction=reduction,
                                             ignore_index=0), classes)
        pixels = torch.randint(0, 3, (N, 4, 3))
        pixels[:3, 2:] = 255
        self.compare(nn.CrossEntropyLoss(weights, label_smoothing=0.1, ignore_index=255), pixels,
                     of_images(), IMAGES)
        self.compare(nn.CrossEntropyLoss(weights, label_smoothing=0.1), classes, precision="bf16",
                     bound=0.03)

    def test_probabilities_as_targets(self):
        weights, target = torch.tensor([0.2, 1.5, 3.0]), torch.randn(N, 3).softmax(1)
        for loss in (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weights, label_smoothing=0.2),
                     nn.CrossEntropyLoss(weights, reduction="sum")):
            with self.subTest(loss=loss):
                self.compare_if_new(loss, target)
        self.compare(lambda y, t: -(t * y.log_softmax(1)).sum(1).mean(), target)

    def test_log_probabilities(self):
        target, weights = torch.randint(0, 3, (N,)), torch.tensor([0.2, 1.5, 3.0])
        target[:] = torch.tensor([0, 1, 2, 0, 1, 0, 1, 1])
        pixels = torch.randint(0, 3, (N, 4, 3))
        for loss in (nn.NLLLoss(), nn.NLLLoss(weights, ignore_index=2),
                     nn.NLLLoss(reduction="sum")):
            with self.subTest(loss=loss):
                self.compare(lambda y, t: loss(F.log_softmax(y, 1), t), target)
                self.compare(lambda y, t: loss(F.logsigmoid(y), t), target)  # unnormalized input
        self.compare(lambda y, t: nn.NLLLoss(weights)(nn.LogSoftmax(1)(y), t), pixels, of_images(),
                     IMAGES)
        self.compare(lambda y, t: F.nll_loss(F.log_softmax(y, 2), t), pixels, of_images(), IMAGES)
        self.compare(lambda y, t: -y.log_softmax(1).gather(1, t[:, None]).mean(), target)
        self.refused(lambda y, t: y.log_softmax(0).mean(), target, "log_softmax within a sample")
        self.refused(lambda y, t: y.gather(1, t[:, None].expand(-1, 2)).mean(), target,
                     "gather of one element")

    def test_binary_cross_entropy(self):
        target, weights = torch.rand(N, 3), torch.tensor([0.2, 1.5, 3.0])
        target[:3] = torch.eye(3)
        for loss in (nn.BCELoss(), nn.BCELoss(weights), nn.BCELoss(reduction="sum")):
            with self.subTest(loss=loss):
                self.compare_if_new(lambda y, t: loss(y.sigmoid(), t), target)
        for loss in (nn.BCEWithLogitsLoss(pos_weight=weights), nn.BCEWithLogitsLoss(weights),
                     nn.BCEWithLogitsLoss(weights, reduction="sum", pos_weight=weights)):
            with self.subTest(loss=loss):
                self.compare(loss, target)
        self.compare(nn.BCEWithLogitsLoss(pos_weight=weights), target, precision="bf16", bound=0.03)

    def test_targets_of_binary_cross_entropy_outside_0_to_1_are_refused(self):
        module, x, target = net(), torch.randn(ROWS), torch.rand(N, 3)
        model = cgpipe.from_torch(module, (x,), loss=lambda y, t: F.binary_cross_entropy(
            y.sigmoid(), t), example_target=target, verify=False, fallback=False)
        with cgpipe.Pipeline(model, batch=N, chunks=2) as pipeline:
            before = pipeline.step(x, target)
            for wrong in (1.01, -0.01):
                target[5, 1] = wrong
                with self.assertRaises(CgpipeError):
                    pipeline.step(x, target)
            target[5, 1] = 1.0
            self.assertLess(abs(pipeline.step(x, target) - before), 1)

    def test_divergence(self):
        target = torch.randn(N, 3).softmax(1)
        target[:2] = torch.tensor([[0.0, 1.0, 0.0], [1e-4, 0.5, 0.4999]])
        for reduction in ("batchmean", "sum", "mean"):
            loss = nn.KLDivLoss(reduction=reduction)
            self.compare(lambda y, t: loss(y.log_softmax(1), t), target)
        loss = nn.KLDivLoss(reduction="batchmean", log_target=True)
        self.compare(lambda y, t: loss(y.log_softmax(1), t), target.clamp_min(1e-3).log())
        self.compare(lambda y, t: loss(t, y.log_softmax(1)), target.clamp_min(1e-3).log())

    def test_losses_that_are_reduced_later(self):
        target, classes = torch.randn(N, 3), torch.randint(0, 3, (N,))
        for loss in (nn.MSELoss(reduction="none"), nn.L1Loss(reduction="none"),
                     nn.HuberLoss(reduction="none", delta=0.3),
                     nn.SmoothL1Loss(reduction="none", beta=0.3),
                     nn.SmoothL1Loss(reduction="none", beta=0)):
            with self.subTest(loss=loss):
                self.compare(lambda y, t: loss(y, t).sum(1).mean(0) - 0.5 * loss(y, t).mean()
                             + loss(y, t).sum() / y.shape[0], target)
        self.compare(lambda y, t: F.mse_loss(y, t, reduction="sum") / (2 * y.shape[0]), target)
        self.compare(lambda y, t: F.cross_entropy(y, t, reduction="none").mean(), classes)
        self.compare(lambda y, t: F.nll_loss(y.log_softmax(1), t, reduction="none").sum(), classes)
        self.compare(lambda y, t: -y.log_softmax(1).mean() * 2, classes)

    def test_losses_of_what_pytorch_runs(self):
        """PyTorch runs one op, one submodule, and a whole module whose trace fails."""
        functions = [lambda x: x.cumsum(-1), lambda x: x.sin() * (1 if float(x.sum()) > 0 else 2),
                     lambda x: x * len(x) ** 0.5]
        target = torch.randn(N, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for function, loss in zip(functions, (
                    lambda y, t: (y - t).square().mean(), lambda y, t: (y * t).sum(),
                    lambda y, t: F.mse_loss(y, t, reduction="none").mean(1).mean())):
                module = nn.Sequential(*net(), torch_support.Function(function))
                self.compare(loss, target, module, fallback=True, chunks=1)

    def test_sums_divided_by_sums(self):
        classes = torch.tensor([0, 1, 2, 0, 0, 1, 0, 2])
        self.compare(lambda y, t: (F.cross_entropy(y, t, reduction="none") * (t != 0)).sum()
                     / (t != 0).sum(), classes)
        weights = torch.rand(N, 3)
        self.compare(lambda y, t: (y * y * t).sum() / t.sum(), weights)
        self.refused(lambda y, t: (y * y * t).sum() / (2 * t).sum(), weights, "mean|sum")
        self.refused(lambda y, t: (y * t).mean() / t.sum(), weights, "a sum divided by")

    def test_penalties_of_weights(self):
        x, theirs = torch.randn(ROWS), Penalized()
        module = copy.deepcopy(theirs)
        model = cgpipe.from_torch(module, (x,), fallback=False)
        with cgpipe.Pipeline(model, stages=2, chunks=3, batch=N,
                             optimizer=cgpipe.SGD(lr=0.1)) as pipeline:
            got = pipeline.step(x)
        expected = theirs(x)
        expected.backward()
        torch.optim.SGD(theirs.parameters(), lr=0.1).step()
        self.assertLessEqual(abs(got - float(expected)), 1e-5 * float(expected))
        for a, b in zip(module.parameters(), theirs.parameters()):
            self.assertLessEqual(float((a - b).norm()), 1e-5 * float(b.norm()))

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
