# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops that move no elements, and of ops that read or write parts of
a tensor."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from cgpipe.torch.attention import Scores
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, Layout, count
from cgpipe.torch.moves import strided
from cgpipe.torch.registry import need, new_axes, op
from cgpipe.torch.translator import Constant, Parameter, Part, Translator, Turned, samples_of

__all__: List[str] = []


# --- views ---


@op("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "squeeze")
def view(t: Translator, x: Any, *_: Any, **__: Any) -> Any:
    if isinstance(x, Parameter) and not isinstance(x, Turned):
        return Parameter(x.name, [size for _, size in t.shape_of_result()])
    value = t.value(x)
    return value.with_layout(value.layout.view(t.shape_of_result()))


@op("expand", "expand_as")
def expand(t: Translator, x: Any, *_: Any, **__: Any) -> Value:
    value = t.value(x)
    return value.with_layout(value.layout.expand(t.shape_of_result()))


@op("repeat_interleave")
def repeat_interleave(t: Translator, x: Any, repeats: Any, dim: Optional[int] = None,
                      output_size: Any = None) -> Value:
    x = t.value(x)
    need(isinstance(repeats, int) and dim is not None,
         "repeat_interleave of a number along a dimension")
    dims = list(x.layout.dims)
    dim = x.layout.dim(dim)
    dims[dim] = dims[dim] + ((Axis(repeats, True),) if repeats > 1 else ())
    return t.value(x).with_layout(x.layout.with_dims(dims))


@op("repeat")
def repeat(t: Translator, x: Any, repeats: Sequence[Any]) -> Value:
    x = t.value(x)
    dims = [()] * (len(repeats) - len(x.layout.dims)) + x.layout.dims
    found = []
    for (batch, size), dim in zip(t.shape_of_result(), dims):
        if batch and BATCH not in dim:
            need(not dim and not x.layout.has_batch, "repeat within a sample")
            dim = (BATCH,)
        times = size // count(dim)
        need(times == 1 or BATCH not in dim, "repeat within a sample: dimension 0 is the samples'")
        found.append(((Axis(times, True),) if times > 1 else ()) + dim)
    return x.with_layout(x.layout.with_dims(found))


@op("permute")
def permute(t: Translator, x: Any, dims: Sequence[int]) -> Value:
    value = t.value(x)
    return value.with_layout(value.layout.permute(dims))


@op("transpose", "swapaxes")
def transpose(t: Translator, x: Any, a: int, b: int) -> Any:
    if isinstance(x, Parameter) and len(x.shape) == 2 and a % 2 != b % 2:
        return (Parameter if isinstance(x, Turned) else Turned)(x.name, x.shape[::-1])
    value = t.value(x)
    return value.with_layout(value.layout.transpose(a, b))


@op("mT", "mH", "adjoint")
def turned(t: Translator, x: Any) -> Any:
    return transpose(t, x, -1, -2)


@op("t")
def t_(t: Translator, x: Any) -> Any:
    return transpose(t, x, 0, 1) if isinstance(x, Parameter) else turned(t, x)


@op("movedim", "moveaxis")
def movedim(t: Translator, x: Any, source: Any, destination: Any) -> Value:
    x = t.value(x)
    need(isinstance(source, int) and isinstance(destination, int), "movedim of one dimension")
    order = list(range(len(x.layout.dims)))
    order.insert(x.layout.dim(destination), order.pop(x.layout.dim(source)))
    return t.value(x).with_layout(x.layout.permute(order))


@op("unsqueeze")
def unsqueeze(t: Translator, x: Any, dim: int) -> Any:
    if isinstance(x, Parameter):
        return view(t, x)
    value = t.value(x)
    return value.with_layout(value.layout.unsqueeze(dim))




# --- parts ---


def cut(t: Translator, x: Value, dim: int, begin: int, end: int) -> Value:
    """Return elements begin .. end - 1 of a dimension."""
    need(BATCH not in x.layout.dims[x.layout.dim(dim)],
         "slice within a sample: dimension 0 is the samples'")
    return t.part(x, dim, begin, end)


@op("slice")
def slice_(t: Translator, x: Any, dim: int = 0, start: Any = None, end: Any = None,
           step: int = 1) -> Value:
    x = t.value(x)
    dim = x.layout.dim(dim)
    if BATCH in x.layout.dims[dim]:
        whole = end is None or (isinstance(end, int) and end >= 2 ** 31)
        need(step == 1 and start in (None, 0) and whole,
             "slice within a sample: dimension 0 is the samples'")
        return x
    size = count(x.layout.dims[dim])
    begin, stop = (0 if start is None else start), (size if end is None else end)
    begin, stop = (min(max(i + size if i < 0 else i, 0), size) for i in (begin, stop))
    return cut(t, x, dim, begin, stop) if step == 1 else strided(t, x, dim, begin, stop, step)


@op("narrow")
def narrow(t: Translator, x: Any, dim: int, start: int, length: int) -> Value:
    return slice_(t, x, dim, start, start + length)


@op("select")
def select(t: Translator, x: Any, dim: int, index: int) -> Value:
    x = t.value(x)
    dim = x.layout.dim(dim)
    need(BATCH not in x.layout.dims[dim], "select within a sample: dimension 0 is the samples'")
    size = count(x.layout.dims[dim])
    index = index + size if index < 0 else index
    y = cut(t, x, dim, index, index + 1)
    return y.with_layout(y.layout.drop(dim))


@op("split", "split_with_sizes")
def split(t: Translator, x: Any, sizes: Any, dim: int = 0) -> List[Value]:
    x = t.value(x)
    dim = x.layout.dim(dim)
    need(BATCH not in x.layout.dims[dim], "split within a sample: dimension 0 is the samples'")
    total = count(x.layout.dims[dim])
    if isinstance(sizes, int):
        sizes = [min(sizes, total - at) for at in range(0, total, sizes)]
    parts, at = [], 0
    for size in sizes:
        parts.append(t.part(x, dim, at, at + size))
        at += size
    return parts


@op("chunk")
def chunk(t: Translator, x: Any, chunks: int, dim: int = 0) -> List[Value]:
    x = t.value(x)
    total = count(x.layout.dims[x.layout.dim(dim)])
    return split(t, x, -(-total // chunks), dim)


@op("unbind")
def unbind(t: Translator, x: Any, dim: int = 0) -> List[Value]:
    x = t.value(x)
    total = count(x.layout.dims[x.layout.dim(dim)])
    return [select(t, x, dim, i) for i in range(total)]


@op("cat", "concat")
def cat(t: Translator, tensors: Sequence[Any], dim: int = 0) -> Value:
    values = [t.whole(x) for x in tensors
              if not (isinstance(x, Constant) and x.tensor.numel() == 0)]
    dim = values[0].layout.dim(dim)
    need(BATCH not in values[0].layout.dims[dim],
         "cat within a sample: dimension 0 is the samples'")
    joined = values[0]
    for value in values[1:]:
        joined = _join(t, joined, value, dim)
    return joined


@op("stack")
def stack(t: Translator, tensors: Sequence[Any], dim: int = 0) -> Value:
    values = [t.value(x) for x in tensors]
    return cat(t, [x.with_layout(x.layout.unsqueeze(dim)) for x in values], dim)


def _join(t: Translator, a: Value, b: Value, dim: int) -> Value:
    """Join two values along a dimension, which becomes the innermost."""
    without = [x.layout.with_dims(x.layout.dims[:dim] + [()] + x.layout.dims[dim + 1:])
               for x in (a, b)]
    own = [list(x.layout.dims[dim]) for x in (a, b)]
    without[0], without[1] = without[0].refined(without[1])
    rest = [axis for axis in without[0].order if axis not in own[0]]
    names = {id(x): y for x, y in zip(without[0].logical(), without[1].logical())}
    other = [names[id(axis)] for axis in rest]
    numbers = [t.graph.arrange(Value(x.number, layout), [axes, inner])
               for x, layout, axes, inner in ((a, without[0], rest, own[0]),
                                              (b, without[1], other, own[1]))]
    sizes = [count(axes) for axes in own]
    y = t.graph.add("concat", numbers, [count(rest), sum(sizes)])
    made = new_axes(sum(sizes))
    dims = list(without[0].dims)
    dims[dim] = made
    return Value(y, Layout(dims, [*rest, *made]))




# --- writes to parts ---


def _check_overwritten(x: Any) -> None:
    """Refuse a write to a whole value. After such a write, the op that made the value would get a
    gradient of zeros, but in PyTorch the gradient is None."""
    need(not isinstance(x, (Value, Scores)) or isinstance(x, Part),
         "a write to a part, or to a tensor that has no gradient")


@op("fill")
def fill(t: Translator, x: Any, value: Any) -> Any:
    _check_overwritten(x)
    shape = t.shape_of_result()
    number = t.number(value)
    need(number is not None, "fill with a number")
    return Constant(torch.full([size for _, size in shape], number, dtype=torch.float32),
                    samples_of(shape))


@op("copy")
def copy(t: Translator, x: Any, source: Any, *_: Any) -> Any:
    _check_overwritten(x)
    value = t.value(source)
    return value.with_layout(value.layout.expand(t.shape_of_result()))


@op("slice_scatter")
def slice_scatter(t: Translator, x: Any, source: Any, dim: int = 0, start: Any = None,
                  end: Any = None, step: int = 1) -> Any:
    x, source = t.value(x), t.value(source)
    dim = x.layout.dim(dim)
    size = count(x.layout.dims[dim])
    if BATCH in x.layout.dims[dim]:
        need(slice_(t, x, dim, start, end, step) is x, "a write to all samples")
        return source
    need(step == 1, "a slice with a step of 1")
    begin, stop = (0 if start is None else start), (size if end is None else end)
    begin, stop = (min(max(i + size if i < 0 else i, 0), size) for i in (begin, stop))
    if begin >= stop:
        return x
    parts = [cut(t, x, dim, 0, begin)] if begin > 0 else []
    parts.append(source)
    parts += [cut(t, x, dim, stop, size)] if stop < size else []
    return cat(t, parts, dim)


@op("select_scatter")
def select_scatter(t: Translator, x: Any, source: Any, dim: int, index: int) -> Any:
    x = t.value(x)
    dim = x.layout.dim(dim)
    size = count(x.layout.dims[dim])
    index = index + size if index < 0 else index
    source = t.value(source)
    return slice_scatter(t, x, source.with_layout(source.layout.unsqueeze(dim)), dim, index,
                         index + 1)
