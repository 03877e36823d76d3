# SPDX-License-Identifier: Apache-2.0
"""Memory that PyTorch keeps in regions, from measurements for a few numbers of samples."""

from __future__ import annotations

import math
from typing import Dict

__all__ = ["bytes_of", "of_a_sample", "of_samples"]


def of_a_sample(counts: Dict[int, int]) -> float:
    """Return how many bytes one more sample takes, from the bytes of numbers of samples."""
    least, most = min(counts), max(counts)
    return ((counts[most] - counts[least]) / (most - least) if most > least
            else counts[least] / least)


def of_samples(counts: Dict[int, int], samples: int) -> int:
    """Return the bytes of a number of samples, at least those of fewer samples that were measured.
    Bytes are taken to grow linearly. -1: none were measured."""
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
