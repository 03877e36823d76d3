# SPDX-License-Identifier: Apache-2.0
"""Measure the memory that PyTorch needs in regions, and count its operations. Memory is measured
for a few numbers of samples."""

from __future__ import annotations

import math
from typing import Any, Dict

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

__all__ = ["bytes_of", "counted", "is_reduced", "of_a_sample", "of_samples"]


def is_reduced(x: Any) -> bool:
    """Return whether a value is a tensor of floats with fewer bits than float32."""
    return isinstance(x, Tensor) and x.is_floating_point() and x.element_size() < 4


class counted(TorchDispatchMode):
    """A context manager that counts floating-point operations. Matrix products, convolutions and
    attention count by PyTorch's formulas; another op counts one operation for each element that it
    writes. ``reduced`` tells whether a result had a type with fewer bits than float32."""

    def __init__(self) -> None:
        super().__init__()
        self.flops, self.reduced = 0.0, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        y = func(*args, **(kwargs or {}))
        results = y if isinstance(y, (tuple, list)) else (y,)
        self.reduced |= any(map(is_reduced, results))
        formula = flop_registry.get(getattr(func, "overloadpacket", None))
        if formula is not None:
            self.flops += formula(*args, **(kwargs or {}), out_val=y)
        elif not getattr(func, "is_view", False):
            self.flops += sum(x.numel() for x in results if isinstance(x, Tensor))
        return y


def of_a_sample(counts: Dict[int, int]) -> float:
    """Return how many bytes each additional sample takes. ``counts`` has the measured bytes for
    each number of samples."""
    least, most = min(counts), max(counts)
    return ((counts[most] - counts[least]) / (most - least) if most > least
            else counts[least] / least)


def of_samples(counts: Dict[int, int], samples: int) -> int:
    """Estimate the bytes that a number of samples takes. The estimate grows linearly, and is not
    less than the measured bytes of fewer samples. Return -1 if nothing was measured."""
    if not counts:
        return -1
    if samples in counts:
        return counts[samples]
    most = max(counts)
    fewer = max((number for n, number in counts.items() if n < samples), default=0)
    return max(fewer, math.ceil(counts[most] + of_a_sample(counts) * (samples - most)))


def bytes_of(number: float) -> str:
    """Return a number of bytes as a text."""
    units = ["B", "KiB", "MiB", "GiB"]
    while number >= 1024 and len(units) > 1:
        number, units = number / 1024, units[1:]
    return f"{number:.3g} {units[0]}"
