# SPDX-License-Identifier: Apache-2.0
"""Translation of ops that are a matrix product along each dimension: interpolation, adaptive
pooling, and the selection of rows.

The matrix is a constant. To compute it, PyTorch's own op is applied to an identity matrix."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Layout, count
from cgpipe.torch.registry import need, new_axes, op
from cgpipe.torch.translator import Constant, Translator

__all__ = ["adaptive_average", "nearest", "resample", "select_rows"]


def resample(t: Translator, x: Value, dim: int, matrix: Tensor) -> Value:
    """Return the product of ``matrix`` [made, size] and a dimension of a sample."""
    x = t.whole(x)
    dims = list(x.layout.dims)
    dim = x.layout.dim(dim)
    need(BATCH not in dims[dim], "rows within a sample: dimension 0 is the samples'")
    own = list(dims[dim])
    rest = [axis for axis in x.layout.order if axis not in own]
    made, size = matrix.shape
    number = t.graph.reshape(t.graph.arrange(x, [own, rest]), [1, size, count(rest)])
    left = t.constant(Constant(matrix[None], (0, 1)), Layout.of_shape([made, size]))
    y = t.graph.add("matmul", [t.graph.reshape(left.number, [1, made, size]), number],
                    [1, made, count(rest)], {"transpose": [False, False]})
    axes = new_axes(made)
    dims[dim] = axes
    return Value(y, Layout(dims, [*axes, *rest]))


def _along(t: Translator, x: Any, sizes: Sequence[int],
           matrix: Callable[[int, int, int], Tensor]) -> Value:
    """Resample the last dimensions to ``sizes``. ``matrix(i, size, made)`` returns the matrix for
    the ``i``-th of these dimensions, from ``size`` elements to ``made``."""
    y = t.value(x)
    first = len(y.layout.dims) - len(sizes)
    need(first == 2, "images [N, C, ...]")
    for i, made in reversed(list(enumerate(sizes))):
        size = y.layout.sizes()[first + i]
        own = matrix(i, size, made)
        if size != made or not torch.equal(own, torch.eye(size, dtype=torch.float32)):
            y = resample(t, y, first + i, own)
    return y


def _sizes(t: Translator) -> List[int]:
    return [size for _, size in t.shape_of_result()[2:]]


def adaptive_average(t: Translator, x: Any) -> Value:
    """Return averages over windows. The number of windows need not divide the size of the image."""
    def matrix(_: int, size: int, made: int) -> Tensor:
        rows = torch.eye(size, dtype=torch.float32)
        return F.adaptive_avg_pool1d(rows[None], made)[0].T.contiguous()
    return _along(t, x, _sizes(t), matrix)


@op("adaptive_avg_pool1d", "adaptive_avg_pool3d")
def adaptive_avg_pool(t: Translator, x: Any, size: Any) -> Value:
    y = t.value(x)
    sizes = _sizes(t)
    if sizes == [1] * len(sizes):
        return t.apply("mean", y, list(range(2, len(y.layout.dims))), True)  # type: ignore
    return adaptive_average(t, y)


def _interpolation(name: str) -> Callable[..., Value]:
    function = getattr(torch.ops.aten, name)
    width = {"upsample_bicubic2d": 1}.get(name, 0)

    def apply(t: Translator, x: Any, _size: Any, *rest: Any) -> Value:
        sizes, scales = _sizes(t), _scales(rest, len(_sizes(t)))
        corners = [] if "nearest" in name else [bool(rest[0])]

        def matrix(i: int, size: int, made: int) -> Tensor:
            one = torch.eye(size, dtype=torch.float32).reshape([1, size, size, *[1] * width])
            y = function(one, [made, *[1] * width], *corners, scales[i], *[None] * width)
            return y.reshape(size, made).T.contiguous()
        return _along(t, x, sizes, matrix)
    return apply


def _scales(rest: Sequence[Any], rank: int) -> List[Optional[float]]:
    """Return the scale of each dimension. Scales are given as a list or as the last arguments."""
    last = rest[-1] if rest else None
    if isinstance(last, (list, tuple)):
        return list(last)
    given = list(rest[-rank:]) if len(rest) >= rank else []
    found = [x for x in given if isinstance(x, (float, type(None))) and not isinstance(x, bool)]
    return found if len(found) == rank else [None] * rank


for _name, _one in (("upsample_linear1d", "upsample_linear1d"),
                    ("upsample_bilinear2d", "upsample_linear1d"),
                    ("upsample_trilinear3d", "upsample_linear1d"),
                    ("upsample_bicubic2d", "upsample_bicubic2d"),
                    ("upsample_nearest1d", "upsample_nearest1d"),
                    ("upsample_nearest3d", "upsample_nearest1d"),
                    ("_upsample_nearest_exact1d", "_upsample_nearest_exact1d"),
                    ("_upsample_nearest_exact2d", "_upsample_nearest_exact1d"),
                    ("_upsample_nearest_exact3d", "_upsample_nearest_exact1d")):
    op(_name)(_interpolation(_one))

nearest = _interpolation("upsample_nearest1d")


# --- rows in another order ---


def _selected(ids: Tensor, size: int) -> Tensor:
    return F.one_hot(ids.long().reshape(-1) % size, size).to(torch.float32)


def select_rows(t: Translator, x: Any, dim: int, ids: Tensor) -> Value:
    """Return elements ``ids`` of a dimension of a sample. The dimension gets the size of
    ``ids``."""
    y = t.value(x)
    dim = y.layout.dim(dim)
    y = resample(t, y, dim, _selected(ids, count(y.layout.dims[dim])))
    if ids.dim() == 1:
        return y
    shape = [(BATCH in d, n) for d, n in zip(y.layout.dims, y.layout.sizes())]
    shape[dim:dim + 1] = [(False, n) for n in ids.shape]
    return y.with_layout(y.layout.view(shape))


@op("flip")
def flip(t: Translator, x: Any, dims: Sequence[int]) -> Value:
    y = t.value(x)
    for dim in dims:
        size = count(y.layout.dims[y.layout.dim(dim)])
        y = select_rows(t, y, dim, torch.arange(size).flip(0))
    return y
