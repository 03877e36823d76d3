# SPDX-License-Identifier: Apache-2.0
"""Choices between tensors by a condition that follows from constants or integer inputs.

    where(c, a, b)    c a + (1 - c) b; c is a hidden input
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Sequence, Tuple

import torch
from torch import Tensor

from cgpipe.torch.evaluate import Computed
from cgpipe.torch.translator import Constant, Outside, Unsupported

if TYPE_CHECKING:
    from cgpipe.torch.translator import Translator

__all__ = ["choose", "derived"]


def derived(t: "Translator", x: Outside, name: Any, function: Callable[[Tensor], Tensor],
            shape: Sequence[Tuple[bool, int]]) -> Outside:
    """Return a function of a node that PyTorch evaluates before each step: numbers of this shape.
    ``name``: equal for the same function."""
    key = (x.node, name)
    if key not in t.derived:
        t.derived[key] = Outside(Computed(function, x.node), list(shape), torch.float32)
    return t.derived[key]


def choose(t: "Translator", condition: Any, a: Any, b: Any) -> Any:
    """Return ``a`` where the condition is true, else ``b``."""
    if not isinstance(condition, (Constant, Outside)):
        raise Unsupported("where of a condition that follows from constants or integer inputs")
    numbers = [t.constant_number(x) for x in (a, b)]
    terms: List[Any] = []
    for x, number, chosen in ((a, numbers[0], True), (b, numbers[1], False)):
        if number is None:
            terms.append(t.binary("multiply", x, _filled(t, condition, chosen, 1.0)))
    for number, chosen in ((numbers[0], True), (numbers[1], False)):
        if number:
            terms.append(_filled(t, condition, chosen, number))
    if not terms or all(number is not None for number in numbers):
        raise Unsupported("where of a tensor with samples")
    return terms[0] if len(terms) == 1 else t.binary("add", terms[0], terms[1])


def _filled(t: "Translator", condition: Any, chosen: bool, number: float) -> Any:
    """Return a number where the condition is ``chosen``, and 0 elsewhere."""
    def fill(condition: Tensor) -> Tensor:
        where = condition if chosen else ~condition
        return torch.zeros(where.shape).masked_fill(where, number)
    if isinstance(condition, Constant):
        return Constant(fill(condition.tensor), condition.batched)
    return derived(t, condition, (chosen, number), fill, condition.shape)
