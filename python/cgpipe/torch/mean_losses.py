# SPDX-License-Identifier: Apache-2.0
"""Losses that are a mean or a sum over all samples. Other ops compute the value that is added up.
Each of these losses is a WEIGHTED_MEAN of the samples' means:

    sum_n (mean of sample n) factor / divisor      divisor: N, 1, or the sum of an input"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Dict, Optional, Sequence, Union

import torch

from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Layout, count
from cgpipe.torch.registry import need
from cgpipe.torch.translator import (Constant, Loss, Outside, Samples, Term, Translator,
                                     Unsupported, shape_of)

__all__ = ["Before", "MeanTerm", "as_float", "mean_of", "quotient", "reduces_all"]


class Before:
    """A function of the result of another node. PyTorch evaluates it before each step."""

    op = "call_function"

    def __init__(self, node: Any, target: Any) -> None:
        self.args, self.target = (node,), target
        self.kwargs: Dict[str, Any] = {}


def as_float(x: Any) -> Any:
    """If the argument is a tensor of integers or booleans that depends on the inputs, return it as
    floats. Return any other argument unchanged."""
    if not isinstance(x, Outside) or x.dtype.is_floating_point:
        return x
    return Outside(Before(x.node, lambda given: given.to(torch.float32)), x.shape, torch.float32)


@dataclass(frozen=True)
class MeanTerm(Term):
    """A WEIGHTED_MEAN. ``inputs`` has the mean of each sample. ``weight`` must not be 0."""

    #: Number of elements of a sample.
    elements: int = 1
    #: True: the samples are added up. False: their mean is taken.
    sums: bool = False
    #: Number of an input. The sum of the samples is divided by the sum of this input.
    divisor: Optional[int] = None
    #: The value whose mean or sum is the loss.
    source: int = -1

    def scaled(self, factor: float) -> "MeanTerm":
        need(math.isfinite(factor) and factor != 0, "a loss times a finite number other than 0")
        return replace(self, weight=factor * self.weight)

    def over_samples(self, number: int) -> "MeanTerm":
        """Return a sum divided by a multiple of the number of samples."""
        need(self.sums, "a sum of losses divided by the number of samples")
        return replace(self, sums=False, weight=self.weight / number)

    def add(self, t: Translator) -> None:
        """Add the loss to the graph."""
        layout = Layout([(BATCH,)], [])
        weight = Constant(torch.full([1], self.weight, dtype=torch.float32))
        factor = t.constant(weight, layout).number
        inputs = [*self.inputs, factor]
        if self.divisor is not None:
            inputs.append(self.divisor)
        attributes = {"sum": True} if self.sums and self.divisor is None else {}
        t.graph.loss("weighted_mean", inputs, attributes, 1.0)


def reduces_all(x: Any, dim: Any) -> bool:
    """Return whether an argument ``dim`` of mean or sum names all dimensions of a value."""
    if dim is None or dim == []:
        return True
    dims = [dim] if isinstance(dim, int) else dim
    return len({x.layout.dim(d) for d in dims}) == len(x.layout.dims)


def mean_of(t: Translator, x: Value, sums: bool = False, divisor: Any = None) -> Loss:
    """Return the mean of all elements of a value, their sum, or their sum divided by the sum of
    ``divisor``. A value that is the same for each sample, such as a function of parameters alone,
    is added only once."""
    x = t.whole(x)
    elements = count(x.layout.order)
    number = t.graph.reshape(x.number, [elements])
    if elements > 1:
        number = t.graph.add("mean", [number], [1], {"dim": [0, 0]})
    term = MeanTerm("weighted_mean", [number], {}, float(elements) if sums else 1.0, elements,
                    sums and x.layout.has_batch, None, x.number)
    if divisor is not None:
        term = replace(term, divisor=t.value(divisor).number)
    return Loss([term])


def _total(x: Any) -> Optional[Any]:
    """If a node computes a sum over all samples, return the argument of the sum, else None."""
    node = x.node if isinstance(x, Outside) else None
    if not isinstance(node, torch.fx.Node) or node.target is not torch.ops.aten.sum.default:
        return None
    source = node.args[0]
    assert isinstance(source, torch.fx.Node)
    return source


def quotient(t: Translator, a: Loss, b: Union[Loss, Samples, Outside]) -> Loss:
    """Return a loss divided by ``b``. ``b`` is the number of samples, the sum of an input, or a
    sum of integers computed from inputs."""
    if isinstance(b, Samples):
        (batch, number), = shape_of([t.node.args[1].meta["val"]])
        need(batch, "a sum of losses divided by the number of samples")
        return Loss([term.over_samples(number) if isinstance(term, MeanTerm)
                     else _over_samples(t, term, number) for term in a.terms])
    terms = [term for term in a.terms if isinstance(term, MeanTerm)]
    need(len(terms) == len(a.terms) and all(x.sums and x.divisor is None for x in terms),
         "a sum divided by a number, by the number of samples, or by a sum of an input")
    if isinstance(b, Loss):
        own = b.terms[0]
        inputs = {entry["value"] for entry in t.graph.inputs}
        need(len(b.terms) == 1 and isinstance(own, MeanTerm) and own.sums
             and own.weight == own.elements and own.source in inputs,
             "a sum divided by the sum of an input")
        assert isinstance(own, MeanTerm)
        return Loss([replace(term, divisor=own.source) for term in terms])
    source = _total(b)
    need(source is not None, "a sum divided by a sum of integers that follow from inputs")
    assert source is not None
    value = source.meta["val"]
    counted = t.value(as_float(Outside(source, shape_of(value.shape), value.dtype)))
    return Loss([replace(term, divisor=counted.number) for term in terms])


def _over_samples(t: Translator, term: Term, number: int) -> Term:
    """Return a loss of the engine that is summed over all elements and divided by a multiple of the
    number of samples. The loss is computed as a mean times a constant."""
    if term.op not in ("mse", "smooth_l1", "bce_with_logits") or "sum" not in term.attributes:
        raise Unsupported("a sum of losses of elements divided by the number of samples")
    elements = math.prod(t.graph.shape(term.inputs[0]))
    rest: Dict[str, Any] = {key: x for key, x in term.attributes.items() if key != "sum"}
    return replace(term, attributes=rest, weight=term.weight * elements / number)


def products(t: Translator, factors: Sequence[Any]) -> Value:
    """Return the product of values, constants and integers that depend on the inputs."""
    found = t.value(factors[0])
    for factor in factors[1:]:
        if factor is not None:
            found = t.binary("multiply", found, as_float(factor))
    return found
