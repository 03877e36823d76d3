# SPDX-License-Identifier: Apache-2.0
"""Optimizers and schedules of the learning rate, as in cgpipe/optim.h. Those of PyTorch's names do
what PyTorch's do."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence, Tuple

from cgpipe import _c
from cgpipe.errors import ArgumentError

__all__ = ["SGD", "Adam", "AdamW", "ConstantLr", "CosineLr", "LrSchedule", "MilestonesLr",
           "Optimizer", "RMSprop", "StepLr"]


@dataclass(frozen=True)
class LrSchedule:
    """How the learning rate changes with the updates: a warm-up from ``start`` lr, then what the
    class says."""

    #: Updates of the warm-up.
    warmup: int = field(default=0, kw_only=True)
    #: First lr of the warm-up / lr, 0 to 1.
    start: float = field(default=0.0, kw_only=True)
    #: Updates between two rises of the warm-up; 0: each.
    warmup_interval: int = field(default=0, kw_only=True)

    def _fill(self, schedule: Any) -> None:
        schedule.warmup, schedule.start, schedule.warmup_interval = self.warmup, self.start, self.warmup_interval


@dataclass(frozen=True)
class ConstantLr(LrSchedule):
    """The optimizer's lr."""


@dataclass(frozen=True)
class CosineLr(LrSchedule):
    """Half a cosine from lr down to ``min_ratio`` lr, then constant."""

    #: The update with the lowest lr, above the warm-up.
    steps: int
    min_ratio: float = 0.0

    def _fill(self, schedule: Any) -> None:
        super()._fill(schedule)
        schedule.kind, schedule.steps, schedule.min_ratio = _c.CGP_LR_COSINE, self.steps, self.min_ratio


@dataclass(frozen=True)
class StepLr(LrSchedule):
    """Times ``gamma`` every ``step_size`` updates."""

    step_size: int
    gamma: float = 0.1

    def _fill(self, schedule: Any) -> None:
        super()._fill(schedule)
        schedule.kind, schedule.step_size, schedule.gamma = _c.CGP_LR_STEP, self.step_size, self.gamma


@dataclass(frozen=True)
class MilestonesLr(LrSchedule):
    """Times ``gamma`` after each of at most 8 ``milestones``, updates that ascend."""

    milestones: Sequence[int]
    gamma: float = 0.1

    def _fill(self, schedule: Any) -> None:
        super()._fill(schedule)
        if len(self.milestones) > _c.MAX_MILESTONES:
            raise ArgumentError(f"milestones: at most {_c.MAX_MILESTONES} are expected, got {len(self.milestones)}")
        schedule.kind, schedule.gamma, schedule.n_milestones = _c.CGP_LR_MILESTONES, self.gamma, len(self.milestones)
        schedule.milestones[:len(self.milestones)] = [_c.integer(m, "milestones", ctypes.c_int64)
                                                      for m in self.milestones]


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """What all optimizers have. Use a class below."""

    #: Learning rate, >= 0.
    lr: float
    weight_decay: float = 0.0
    #: Largest norm of all gradients, > 0; None: no limit.
    clip_norm: Optional[float] = None
    #: Weight decay of norms and biases too, as PyTorch's. False: of the parameters that the model says decay.
    decay_all: bool = True
    #: Of lr; None: constant.
    schedule: Optional[LrSchedule] = None

    def _struct(self) -> Any:
        """Return the cgp_optim, checked."""
        if type(self) is Optimizer:
            raise ArgumentError("optimizer: SGD, AdamW, Adam or RMSprop is expected, got Optimizer")
        optim = _c.cgp_optim(lr=self.lr, weight_decay=self.weight_decay, clip_norm=self.clip_norm
                             or 0.0, decay_all=self.decay_all)
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ArgumentError(f"clip_norm: a number above 0 or None is expected, got {self.clip_norm}")
        self._fill(optim)
        if self.schedule is not None:
            self.schedule._fill(optim.schedule)
        _c.check(_c.lib.cgp_optim_check(ctypes.byref(optim)))
        return optim

    def _fill(self, optim: Any) -> None:
        pass

    def lr_at(self, update: int) -> float:
        """Return the learning rate of an update, from 1.

        Raises:
            ArgumentError: A constant is out of range.
        """
        return float(_c.lib.cgp_optim_lr_at(ctypes.byref(self._struct()),
                                            _c.integer(update, "update", ctypes.c_int64)))


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """SGD with momentum, 0 <= momentum < 1, optionally Nesterov's."""

    momentum: float = 0.0
    nesterov: bool = False

    def _fill(self, optim: Any) -> None:
        optim.kind, optim.momentum, optim.nesterov = _c.CGP_OPTIM_SGD, self.momentum, self.nesterov


@dataclass(frozen=True, kw_only=True)
class AdamW(Optimizer):
    """AdamW: weight decay beside the gradient."""

    weight_decay: float = 0.01
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def _fill(self, optim: Any) -> None:
        optim.kind, optim.eps = _c.CGP_OPTIM_ADAMW, self.eps
        optim.beta1, optim.beta2 = self.betas


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam: weight decay in the gradient."""

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
        optim.kind, optim.momentum, optim.alpha, optim.eps = _c.CGP_OPTIM_RMSPROP, self.momentum, self.alpha, self.eps
