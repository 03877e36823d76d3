# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops that move elements within a sample: roll, padding, slices with
a step, and rows selected by constant indices."""

from __future__ import annotations

import math
from typing import Any, List, Sequence

import torch

from cgpipe.torch.attention import Positions
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, Layout, count
from cgpipe.torch.registry import need, new_axes, op
from cgpipe.torch.resample import select_rows
from cgpipe.torch.translator import Constant, Parameter, Translator, Turned

__all__ = ["padded", "strided"]


def along(t: Translator, x: Value, dim: int, name: str, attributes: Any, made: int) -> Value:
    """Add a node on images [size, 1, C]. The rows of the image are a dimension of a sample, and its
    channels are all other elements. The node changes the size of the dimension to ``made``."""
    x = t.whole(x)
    dims = list(x.layout.dims)
    dim = x.layout.dim(dim)
    need(BATCH not in dims[dim], f"{name} within a sample: dimension 0 is the samples'")
    own = list(dims[dim])
    rest = [axis for axis in x.layout.order if axis not in own]
    number = t.graph.reshape(t.graph.arrange(x, [own, rest]), [count(own), 1, count(rest)])
    y = t.graph.add(name, [number], [made, 1, count(rest)], attributes)
    dims[dim] = new_axes(made)
    return Value(y, Layout(dims, [*dims[dim], *rest]))


def padded(t: Translator, x: Value, dim: int, before: int, after: int) -> Value:
    """Return x with zeros inserted before and after the elements of a dimension. Negative numbers
    remove elements."""
    size = count(x.layout.dims[x.layout.dim(dim)])
    if before < 0 or after < 0:
        x = t.part(x, dim, max(0, -before), size - max(0, -after))
        size = count(x.layout.dims[x.layout.dim(dim)])
    before, after = max(0, before), max(0, after)
    if before == after == 0:
        return x
    return along(t, x, dim, "pad", {"kernel": [1, 1], "stride": [1, 1],
                                    "padding": [before, after, 0, 0]}, size + before + after)


def strided(t: Translator, x: Value, dim: int, begin: int, end: int, step: int) -> Value:
    """Return elements ``begin``, ``begin + step``, .. of a dimension, below ``end``."""
    x = t.whole(x)
    dim = x.layout.dim(dim)
    size, number = count(x.layout.dims[dim]), max(0, -(-(end - begin) // step))
    need(number > 0, "a slice with elements")
    if step == 1 or number == 1:
        return t.part(x, dim, begin, begin + number)
    if begin + number * step > size:
        x = padded(t, x, dim, 0, begin + number * step - size)
    part = t.whole(t.part(x, dim, begin, begin + number * step))
    # Copy the value. In the copy, two axes replace the axis: one counts the steps, and one counts
    # the elements of a step.
    count_before = list(part.layout.dims)
    dims: List[Any] = list(count_before)
    outer, inner = new_axes(number), (Axis(step),)
    own = list(count_before[dim])
    at = part.layout.order.index(own[0])
    order = list(part.layout.order)
    if order[at:at + len(own)] != own:
        rest = [axis for axis in order if axis not in own]
        value, order, at = t.graph.arrange(part, [rest, own]), [*rest, *own], len(rest)
    else:
        value = part.number
    order[at:at + len(own)] = [*outer, *inner]
    dims[dim:dim + 1] = [outer, inner]
    y = t.part(Value(value, Layout(dims, order)), dim + 1, 0, 1)
    return y.with_layout(y.layout.drop(dim + 1))


@op("roll")
def roll(t: Translator, x: Any, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    y = t.value(x)
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    need(len(dims) == len(shifts), "roll along dimensions")
    for shift, dim in zip(shifts, dims):
        size = count(y.layout.dims[y.layout.dim(dim)])
        shift %= size
        if shift:
            parts = [t.part(y, dim, size - shift, size), t.part(y, dim, 0, size - shift)]
            y = t.apply("cat", parts, dim)
    return y


@op("index", "index_select")
def index(t: Translator, x: Any, *arguments: Any) -> Any:
    if isinstance(arguments[0], int):
        dim, ids = arguments
    else:
        found = [(i, entry) for i, entry in enumerate(arguments[0]) if entry is not None]
        need(len(found) == 1, "one index")
        dim, ids = found[0]
    need(isinstance(ids, Constant) and ids.samples is None and ids.tensor.dtype != torch.bool
         and not ids.tensor.dtype.is_floating_point, "an index that is the same for all samples")
    tensor = ids.tensor
    if isinstance(x, Parameter) and not isinstance(x, Turned) and dim == 0:
        size, width = x.shape[0], math.prod(x.shape[1:])
        rows = Positions(Parameter(x.name, [size, width]), tensor % size)
        if len(x.shape) == 2:
            return rows
        y = t.value(rows)
        return y.with_layout(y.layout.view([(False, n) for n in (*tensor.shape, *x.shape[1:])]))
    return select_rows(t, x, dim, tensor)
