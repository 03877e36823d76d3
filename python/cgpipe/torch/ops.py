# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops to nodes of a graph. Each op name (without namespace and
overload) has a function. This file has the functions for ops on rows, products and sums. Other ops
are in elementwise.py, views.py, images.py and losses.py.

A function takes the translator and the op's arguments, and returns the op's result. An argument is
a Value (a tensor of the graph), a Constant, a Parameter, a number, a list or None.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from cgpipe.torch import masks
from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, Layout, count
from cgpipe.torch.mean_losses import mean_of, reduces_all
from cgpipe.torch.registry import OPS, names, need, new_axes, op
from cgpipe.torch.translator import (Constant, Outside, Parameter, Translator, Turned,
                                     Unsupported)

__all__ = ["OPS", "names"]


# --- rows ---


def rows(t: Translator, x: Any) -> Tuple[int, Layout, List[Axis]]:
    """Move the last dimension of a value to the innermost place in memory. Return that value, its
    layout, and its other axes."""
    x = t.whole(x)
    last = list(x.layout.dims[-1])
    rest = [axis for axis in x.layout.order if axis not in last]
    if len(x.layout.dims) == 1:
        raise Unsupported("a row of the samples: dimension 0 is theirs")
    number = t.graph.arrange(x, [*_grouped(rest), last])
    return number, Layout(x.layout.dims, rest + last), rest


def _grouped(axes: Sequence[Axis]) -> List[List[Axis]]:
    """Group axes into at most four dimensions. Ops on rows work with any grouping."""
    return ([[axis] for axis in axes[:3]] + ([list(axes[3:])] if len(axes) > 3 else [])
            if axes else [])


def _linear(t: Translator, x: Any, weight: Parameter, bias: Any, transposed: bool) -> Value:
    if isinstance(weight, Turned):
        weight, transposed = Parameter(weight.name, weight.shape[::-1]), not transposed
    number, layout, rest = rows(t, x)
    need(isinstance(weight, Parameter) and (bias is None or isinstance(bias, Parameter)),
         "linear of a parameter's view")
    out, inner = ((weight.shape[1], weight.shape[0]) if transposed
                  else (weight.shape[0], weight.shape[1]))
    parameters = [t.parameter(weight, [inner, out] if transposed else [out, inner])]
    if bias is not None:
        parameters.append(t.parameter(bias, [out], decays=False))
    shape = t.graph.shape(number)[:-1] + [out]
    y = t.graph.add("linear", [number], shape,
                    {"size": out, "bias": bias is not None, "transposed": transposed}, parameters)
    made = new_axes(out)
    return Value(y, Layout([*layout.dims[:-1], made], [*rest, *made]))


@op("linear")
def linear(t: Translator, x: Any, weight: Any, bias: Any = None) -> Value:
    return _linear(t, x, weight, bias, False)


@op("addmm")
def addmm(t: Translator, bias: Any, x: Any, weight: Any, beta: float = 1,
          alpha: float = 1) -> Value:
    need(beta == 1 and alpha == 1, "addmm with beta and alpha of 1")
    return _linear(t, x, weight, bias, True)


@op("softmax")
def softmax(t: Translator, x: Any, dim: int, dtype: Any = None) -> Any:
    return x.softmax(dim) if isinstance(x, Scores) else _of_rows(t, "softmax", x, dim)


@op("log_softmax")
def log_softmax(t: Translator, x: Any, dim: int, dtype: Any = None) -> Value:
    return _of_rows(t, "log_softmax", x, dim)


def _of_rows(t: Translator, name: str, x: Any, dim: int) -> Value:
    """Add an op on rows along a dimension."""
    x = t.whole(x)
    dims = list(x.layout.dims)
    dim = x.layout.dim(dim)
    need(BATCH not in dims[dim], f"{name} within a sample")
    last = x.with_layout(x.layout.with_dims(dims[:dim] + dims[dim + 1:] + [dims[dim]]))
    number, layout, _ = rows(t, last)
    y = t.graph.add(name, [number], t.graph.shape(number))
    return Value(y, Layout(dims, layout.order))


class _Kept:
    """A node that PyTorch evaluates before each step. Its result is 1 where an id is not the
    padding, else 0."""

    op = "call_function"

    def __init__(self, ids: Any, padding: int) -> None:
        self.args, self.padding = (ids,), padding
        self.kwargs: Dict[str, Any] = {}

    def target(self, ids: Any) -> Any:
        return (ids != self.padding).to(torch.float32).unsqueeze(-1)


def _padded_embedding(t: Translator, weight: Parameter, ids: Any, padding: int) -> Value:
    """Return rows of an embedding table. The row at index ``padding`` gets no gradient."""
    need(isinstance(ids, Outside) and isinstance(ids.node, torch.fx.Node),
         "embedding with padding_idx of ids that are inputs, or follow from them")
    y = embedding(t, weight, ids)
    fixed = t.unary("detach", y)
    kept = Outside(_Kept(ids.node, padding), [*ids.shape, (False, 1)], torch.float32)
    return t.binary("add", fixed, t.binary("multiply", t.binary("subtract", y, fixed), kept))


@op("embedding")
def embedding(t: Translator, weight: Any, ids: Any, padding_idx: int = -1,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    need(isinstance(weight, Parameter), "embedding of a parameter")
    need(not scale_grad_by_freq and not sparse, "embedding without scale_grad_by_freq and sparse")
    if padding_idx >= 0:
        return _padded_embedding(t, weight, ids, padding_idx)
    if isinstance(ids, Constant) and not t.is_batched(ids):
        return Positions(weight, ids.tensor)
    number, layout = t.integers(ids)
    vocab, width = weight.shape
    named = t.parameter(weight, [vocab, width])
    made = new_axes(width)
    shape = [axis.size for axis in layout.order] + [width]
    y = t.graph.add("embedding", [number], shape if layout.order else [1, width],
                    {"size": vocab, "width": width}, [named])
    return Value(y if layout.order else t.graph.reshape(y, [width]),
                 Layout([*layout.dims, made], [*layout.order, *made]))


# --- sums ---


def _is_loss(t: Translator, x: Value, dim: Any, keepdim: bool) -> bool:
    """Return whether a mean or sum is a single number that has a gradient. Such a number is a
    loss."""
    return reduces_all(x, dim) and not keepdim and t.graph.has_gradient(x.number)


def _is_input(t: Translator, x: Value, dim: Any) -> bool:
    """Return whether a sum adds up a whole input. Such a sum may be the divisor of a loss."""
    return reduces_all(x, dim) and any(entry["value"] == x.number for entry in t.graph.inputs)


@op("mean")
def mean(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    x = t.value(x)
    if _is_loss(t, x, dim, keepdim):
        return mean_of(t, x)
    need(dim is not None and dim != [], "mean within a sample: over dimensions")
    dims = sorted(x.layout.dim(d) for d in ([dim] if isinstance(dim, int) else dim))
    need(all(BATCH not in x.layout.dims[d] for d in dims),
         "mean within a sample: dimension 0 is the samples'")
    own = [axis for d in dims for axis in x.layout.dims[d]]
    rest = [axis for axis in x.layout.order if axis not in own]
    ordered = [axis for axis in x.layout.order if axis in own]
    first = x.layout.order.index(ordered[0]) if ordered else 0
    before = rest if x.layout.order[first:first + len(ordered)] != ordered else rest[:first]
    after = rest[len(before):]
    number = t.graph.arrange(x, [before, ordered, after])
    y = t.graph.add("mean", [number], [count(before), count(after)], {"dim": [1, 0]})
    left = [() if d in dims else axes for d, axes in enumerate(x.layout.dims)]
    if not keepdim:
        left = [axes for d, axes in enumerate(left) if d not in dims]
    return Value(y, Layout(left, rest))


@op("sum")
def sum_(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    """Compute a sum as the mean times the number of its terms."""
    x = t.value(x)
    if _is_loss(t, x, dim, keepdim) or _is_input(t, x, dim):
        return mean_of(t, x, sums=True)
    dims = [dim] if isinstance(dim, int) else list(dim or [])
    need(bool(dims) and all(BATCH not in x.layout.dims[x.layout.dim(d)] for d in dims),
         "sum within a sample: over dimensions, not 0, the samples'")
    terms = count(axis for d in dims for axis in x.layout.dims[x.layout.dim(d)])
    y = mean(t, x, dims, keepdim)
    return y if terms == 1 else t.unary("scale", y, {"slope": terms})


@op("matmul", "bmm")
def matmul(t: Translator, a: Any, b: Any) -> Any:
    if isinstance(a, Scores):
        return a.times(t, t.value(b))
    if isinstance(b, Parameter) and len(b.shape) == 2:
        return _linear(t, a, b, None, True)
    a, b = t.value(a), t.value(b)
    need(len(a.layout.dims) == len(b.layout.dims) >= 3,
         "matmul of as many dimensions, the samples' in front")
    return Scores(t, a, b)


@op("baddbmm")
def baddbmm(t: Translator, bias: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    scores = Scores(t, t.value(a), t.value(b)).scaled(alpha)
    if beta == 0:
        return scores
    return t.apply("add", scores, bias if beta == 1 else t.apply("mul", bias, beta))


@op("scaled_dot_product_attention")
def attention(t: Translator, q: Any, k: Any, v: Any, mask: Any = None, p: float = 0.0,
              is_causal: bool = False, scale: Optional[float] = None,
              enable_gqa: bool = False) -> Any:
    need(t.training or p == 0, "dropout in the mode, train or eval, of the whole module")
    q, k, v = t.value(q), t.value(k), t.value(v)
    if len(q.layout.dims) == 3:
        q, k, v = (x.with_layout(x.layout.unsqueeze(1)) for x in (q, k, v))
        y = attention(t, q, k, v, mask, p, is_causal, scale)
        return y.with_layout(y.layout.drop(1))
    scores = Scores(t, q, k.with_layout(k.layout.transpose(-1, -2)), grouped=enable_gqa)
    scores.scale = scale if scale is not None else count(q.layout.dims[-1]) ** -0.5
    return masks.attend(t, scores, v, mask, p, is_causal)
