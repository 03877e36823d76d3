# SPDX-License-Identifier: Apache-2.0
"""The table of translated ops, and helpers that their translations share."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple, TypeVar

from cgpipe.torch.layout import Axis
from cgpipe.torch.translator import Unsupported

__all__ = ["OPS", "names", "need", "new_axes", "op", "pair"]

OPS: Dict[str, Callable[..., Any]] = {}


F = TypeVar("F", bound=Callable[..., Any])


def op(*names: str) -> Callable[[F], F]:
    """Register a function for ops with these names."""
    def register(function: F) -> F:
        for name in names:
            OPS[name] = function
        return function
    return register


def new_axes(size: int) -> Tuple[Axis, ...]:
    """Return new axes for a dimension of an op's result."""
    return (Axis(size),) if size != 1 else ()


def need(condition: bool, hint: str) -> None:
    """Refuse the form of an op unless ``condition`` holds."""
    if not condition:
        raise Unsupported(hint)


def pair(value: Any) -> List[int]:
    """Return two numbers: the numbers of a list of two, or a single number twice."""
    values: List[int] = [value] if isinstance(value, int) else list(value)
    return values * 2 if len(values) == 1 else values


def names() -> List[str]:
    """Return the names of the supported ops."""
    return sorted(OPS)
