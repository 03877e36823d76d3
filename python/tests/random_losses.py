# SPDX-License-Identifier: Apache-2.0
"""Losses of random modules: functions of the output and a target, and functions that draw the
target."""

import torch
from torch.nn import functional as F

__all__ = ["LOSSES", "Loss"]


def _rows(y):
    """Return an output as [N, classes]; its last dimension counts as classes."""
    return y.flatten(0, -2)


def _values(y):
    return torch.randn(y.shape)


def _fractions(y):
    return torch.rand(y.shape)


def _classes(y):
    return torch.randint(0, y.shape[-1], y.shape[:-1])


def _masks(y):
    """Return a mask with at least one element."""
    mask = (torch.rand(y.shape) < 0.7).float()
    mask[0] = 1.0
    return mask


def _of_classes(y, target, **options):
    return F.cross_entropy(_rows(y), target.flatten(), **options)


def _weighted(y, target):
    weight = torch.linspace(0.5, 2.0, y.shape[-1])
    return F.cross_entropy(_rows(y), target.flatten(), weight, label_smoothing=0.1)


def _squares(y, target):
    return F.mse_loss(y, target)


#: Each entry has a name, a function of (output, target), and a function that draws a target for an
#: output.
LOSSES = [
    ("mse", _squares, _values),
    ("mse as a sum", lambda y, t: F.mse_loss(y, t, reduction="sum") / y.shape[0], _values),
    ("mse by hand", lambda y, t: (y - t).square().mean(), _values),
    ("mse of elements", lambda y, t: F.mse_loss(y, t, reduction="none").mean(-1).mean(), _values),
    ("l1 and squares", lambda y, t: F.l1_loss(y, t) + 0.1 * y.pow(2).mean(), _values),
    ("smooth l1", lambda y, t: 3 * F.smooth_l1_loss(y, t, beta=0.5), _values),
    ("huber and mse", lambda y, t: F.huber_loss(y, t, delta=0.7) + _squares(y, t), _values),
    ("product", lambda y, t: (y * t).sum(), _values),
    ("binary cross-entropy", lambda y, t: F.binary_cross_entropy_with_logits(y, t), _fractions),
    ("masked mean", lambda y, t: (y.square() * t).sum() / t.sum(), _masks),
    ("cross-entropy", _of_classes, _classes),
    ("smoothed cross-entropy", lambda y, t: _of_classes(y, t, label_smoothing=0.2), _classes),
    ("weighted cross-entropy", _weighted, _classes),
    ("nll", lambda y, t: F.nll_loss(F.log_softmax(_rows(y), -1), t.flatten()), _classes),
    ("cross-entropy by hand", lambda y, t: -F.log_softmax(y, -1).gather(
        -1, t.unsqueeze(-1)).mean(), _classes),
]


class Loss:
    """A loss for a random module: one of LOSSES for the first output that has a gradient. For each
    further output that has a gradient, 0.3 times the output's mean is added."""

    def __init__(self, pick, gradients):
        """``gradients`` says for each output whether it has a gradient."""
        self.name, self._function, self._target = pick.choice(LOSSES)
        self._kept = [i for i, has_gradient in enumerate(gradients) if has_gradient]

    def target(self, outputs):
        """Return a target."""
        return self._target(outputs[self._kept[0]])

    def __call__(self, outputs, target):
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        loss = self._function(outputs[self._kept[0]], target)
        return loss + sum(0.3 * outputs[i].mean() for i in self._kept[1:])
