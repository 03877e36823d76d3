# SPDX-License-Identifier: Apache-2.0
"""Choices between tensors by a condition that follows from constants or integer inputs.

    where(c, a, b)    c a + (1 - c) b; c is a hidden input

Because 0 times infinity is NaN, a choice stays in PyTorch if its tensors may be infinite or NaN.
This is the case for results of logarithms, roots, quotients and exponentials. It is also the case
for inputs of the module until a layer has processed them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, List, Sequence, Tuple

import torch
from torch import Tensor

from cgpipe.torch.evaluate import Computed
from cgpipe.torch.functions import NUMBERS
from cgpipe.torch.translator import Constant, Outside, Parameter, Unsupported

if TYPE_CHECKING:
    from cgpipe.torch.translator import Translator

__all__ = ["choose", "derived"]


def derived(t: "Translator", x: Outside, name: Any, function: Callable[[Tensor], Tensor],
            shape: Sequence[Tuple[bool, int]]) -> Outside:
    """Return a node that PyTorch evaluates before each step. Its result is ``function(x)``, a
    tensor of numbers of this shape. ``name`` identifies the function."""
    key = (x.node, name)
    if key not in t.derived:
        t.derived[key] = Outside(Computed(function, x.node), list(shape), torch.float32)
    return t.derived[key]


def choose(t: "Translator", condition: Any, a: Any, b: Any) -> Any:
    """Return ``a`` where the condition is true, else ``b``."""
    if not isinstance(condition, (Constant, Outside)):
        raise Unsupported("where of a condition that follows from constants or integer inputs")
    numbers = [t.constant_number(x) for x in (a, b)]
    if any(number is None and _may_be_infinite(t, x) for x, number in zip((a, b), numbers)):
        raise Unsupported("where of tensors that are finite, as those after a layer are,")
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
    """Return ``number`` where the condition equals ``chosen``, and 0 elsewhere."""
    def fill(condition: Tensor) -> Tensor:
        where = condition if chosen else ~condition
        return torch.zeros(where.shape, dtype=torch.float32).masked_fill(where, number)
    if isinstance(condition, Constant):
        return Constant(fill(condition.tensor), condition.samples)
    found = derived(t, condition, (chosen, number), fill, condition.shape)
    found.finite = math.isfinite(number)
    return found


#: Elementwise functions whose results may be infinite or NaN for finite arguments.
_UNBOUNDED = {NUMBERS[name] for name in ("sqrt", "rsqrt", "reciprocal", "exp", "log")}


def _may_be_infinite(t: "Translator", x: Any) -> bool:
    """Return whether an operand may have elements that are infinite or NaN, other than by
    overflow."""
    if isinstance(x, Constant):
        return not bool(torch.isfinite(x.tensor).all())
    if isinstance(x, Parameter):
        return False
    makers = {node["output"]: node for node in t.graph.nodes}
    pending, seen = [(t.value(x).number, True)], set()
    hidden = {entry.number: entry for entry in t.hidden}
    while pending:
        # ``is_raw`` is true if no layer lies between the module's input and the value.
        number, is_raw = place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        node = makers.get(number)
        if node is None:
            if is_raw and not _is_finite(hidden.get(number)):
                return True
            continue
        if is_raw and "custom" in node:
            return True
        if node.get("op") in ("function", "function_of_y") \
                and node["attributes"]["function"] in _UNBOUNDED:
            return True
        is_raw = is_raw and not node.get("parameters")
        pending += [(x, is_raw) for x in node["inputs"]]
    return False


def _is_finite(hidden: Any) -> bool:
    """Return whether all elements of a graph input are known to be finite. If ``hidden`` is None,
    the input is an input of the module, whose elements may be infinite."""
    if hidden is None:
        return False
    if hidden.rows is not None:
        return bool(torch.isfinite(hidden.rows).all())
    return bool(hidden.outside.finite)
