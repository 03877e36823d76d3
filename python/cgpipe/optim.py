# SPDX-License-Identifier: Apache-2.0
"""Optimizers and learning rate schedules (cgpipe/optim.h). An optimizer with the name of a PyTorch
optimizer computes the same updates as that optimizer."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence, Tuple, Union

from cgpipe import _c
from cgpipe.errors import ArgumentError

__all__ = ["SGD", "Adam", "AdamW", "ConstantLr", "CosineLr", "LrSchedule", "MilestonesLr",
           "Optimizer", "ParameterGroup", "RMSprop", "StepLr"]


@dataclass(frozen=True)
class LrSchedule:
    """Learning rate as a function of the update: first a warm-up from ``start`` x lr, then the
    curve that the subclass defines."""

    #: Number of warm-up updates.
    warmup: int = field(default=0, kw_only=True)
    #: First learning rate of the warm-up, as a fraction of lr, 0 to 1.
    start: float = field(default=0.0, kw_only=True)
    #: In the warm-up, the learning rate rises once per this number of updates; 0: it rises at each
    #: update.
    warmup_interval: int = field(default=0, kw_only=True)

    def _fill(self, schedule: Any) -> None:
        schedule.warmup, schedule.start, schedule.warmup_interval = (
            self.warmup, self.start, self.warmup_interval)


@dataclass(frozen=True)
class ConstantLr(LrSchedule):
    """A constant learning rate: the lr of the optimizer."""


@dataclass(frozen=True)
class CosineLr(LrSchedule):
    """Half a cosine from lr down to ``min_ratio`` x lr, then constant."""

    #: Number of the update with the lowest lr; larger than ``warmup``.
    steps: int
    min_ratio: float = 0.0

    def _fill(self, schedule: Any) -> None:
        super()._fill(schedule)
        schedule.kind, schedule.steps, schedule.min_ratio = (
            _c.CGP_LR_COSINE, self.steps, self.min_ratio)


@dataclass(frozen=True)
class StepLr(LrSchedule):
    """Multiplies lr by ``gamma`` every ``step_size`` updates."""

    step_size: int
    gamma: float = 0.1

    def _fill(self, schedule: Any) -> None:
        super()._fill(schedule)
        schedule.kind, schedule.step_size, schedule.gamma = (
            _c.CGP_LR_STEP, self.step_size, self.gamma)


@dataclass(frozen=True)
class MilestonesLr(LrSchedule):
    """Multiplies lr by ``gamma`` after each of the ``milestones``: at most 8 ascending numbers of
    updates."""

    milestones: Sequence[int]
    gamma: float = 0.1

    def _fill(self, schedule: Any) -> None:
        super()._fill(schedule)
        if len(self.milestones) > _c.MAX_MILESTONES:
            raise ArgumentError(f"milestones: at most {_c.MAX_MILESTONES} are expected, got "
                                f"{len(self.milestones)}")
        schedule.kind, schedule.gamma, schedule.n_milestones = (
            _c.CGP_LR_MILESTONES, self.gamma, len(self.milestones))
        schedule.milestones[:len(self.milestones)] = [
            _c.integer(m, "milestones", ctypes.c_int64) for m in self.milestones]


@dataclass(frozen=True)
class ParameterGroup:
    """A group of parameters with its own constants, like an entry of PyTorch's param_groups. A
    parameter belongs to the first group that has a pattern for its name. If no pattern matches,
    the parameter belongs to no group."""

    #: Patterns as in :meth:`Model.freeze`, each of which must match a parameter.
    patterns: Union[str, Sequence[str]]
    #: Learning rate, which the schedule multiplies; None: the learning rate of the optimizer.
    lr: Optional[float] = None
    #: Weight decay of all parameters in the group, including norms and biases; None: the weight
    #: decay of the optimizer.
    weight_decay: Optional[float] = None

    def _struct(self) -> Any:
        patterns = [self.patterns] if isinstance(self.patterns, str) else self.patterns
        text = ",".join(pattern.replace(",", "\\,") for pattern in patterns)
        return _c.cgp_optim_group(patterns=_c.encode(text, "patterns"), lr=_or_nan(self.lr),
                                  weight_decay=_or_nan(self.weight_decay))


def _or_nan(value: Optional[float]) -> float:
    return math.nan if value is None else value


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """Base of all optimizers. Use a subclass."""

    #: Learning rate, >= 0.
    lr: float
    weight_decay: float = 0.0
    #: Largest norm of all gradients, > 0; None: no limit.
    clip_norm: Optional[float] = None
    #: Decay norms and biases too, like PyTorch. False: decay only the parameters that the model
    #: marks.
    decay_all: bool = True
    #: Learning rate schedule; None: constant.
    schedule: Optional[LrSchedule] = None
    #: Groups of parameters with constants of their own.
    groups: Sequence[ParameterGroup] = ()

    def _struct(self) -> Any:
        """Return the checked cgp_optim."""
        if type(self) is Optimizer:
            raise ArgumentError("optimizer: SGD, AdamW, Adam or RMSprop is expected, got Optimizer")
        optim = _c.cgp_optim(lr=self.lr, weight_decay=self.weight_decay,
                             clip_norm=self.clip_norm or 0.0, decay_all=self.decay_all)
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ArgumentError(
                f"clip_norm: a number above 0 or None is expected, got {self.clip_norm}")
        if self.groups:
            groups = [group._struct() for group in self.groups]
            optim.groups = (_c.cgp_optim_group * len(groups))(*groups)
            optim.n_groups = len(groups)
        self._fill(optim)
        if self.schedule is not None:
            self.schedule._fill(optim.schedule)
        _c.check(_c.lib.cgp_optim_check(ctypes.byref(optim)))
        return optim

    def _fill(self, optim: Any) -> None:
        pass

    def lr_at(self, update: int) -> float:
        """Return the learning rate of an update, counted from 1.

        Raises:
            ArgumentError: A constant is out of range.
        """
        return float(_c.lib.cgp_optim_lr_at(ctypes.byref(self._struct()),
                                            _c.integer(update, "update", ctypes.c_int64)))


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """SGD with momentum, 0 <= momentum < 1, optionally Nesterov momentum."""

    momentum: float = 0.0
    nesterov: bool = False

    def _fill(self, optim: Any) -> None:
        optim.kind, optim.momentum, optim.nesterov = _c.CGP_OPTIM_SGD, self.momentum, self.nesterov


@dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """AdamW: decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101)."""

    weight_decay: float = 0.01
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def _fill(self, optim: Any) -> None:
        optim.kind, optim.eps = _c.CGP_OPTIM_ADAMW, self.eps
        optim.beta1, optim.beta2 = self.betas


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980): weight decay is added to the gradient."""

    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def _fill(self, optim: Any) -> None:
        optim.kind, optim.eps = _c.CGP_OPTIM_ADAM, self.eps
        optim.beta1, optim.beta2 = self.betas


@dataclass(frozen=True, kw_only=True)
class RMSprop(Optimizer):
    """RMSprop, 0 <= alpha < 1."""

    momentum: float = 0.0
    alpha: float = 0.99
    eps: float = 1e-8

    def _fill(self, optim: Any) -> None:
        optim.kind, optim.momentum, optim.alpha, optim.eps = (
            _c.CGP_OPTIM_RMSPROP, self.momentum, self.alpha, self.eps)
