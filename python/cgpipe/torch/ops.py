# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops to nodes of a graph: a function for each op's name, without
namespace and overload.

A function takes the translator and the op's arguments, and returns the op's result. Arguments are
Value (a tensor of the graph), Constant, Parameter, numbers, lists and None.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, TypeVar

import torch
from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Axis, Layout, count
from cgpipe.torch.translator import Constant, Loss, Parameter, Translator, Unsupported

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
    """Return two numbers, from one or two."""
    values: List[int] = [value] if isinstance(value, int) else list(value)
    return values * 2 if len(values) == 1 else values


# --- rows ---


def rows(t: Translator, x: Any) -> Tuple[int, Layout, List[Axis]]:
    """Return a value with its last dimension innermost in memory, its layout, and its other
    axes."""
    x = t.value(x)
    last = list(x.layout.dims[-1])
    rest = [axis for axis in x.layout.order if axis not in last]
    if len(x.layout.dims) == 1:
        raise Unsupported("a row of the samples: dimension 0 is theirs")
    number = t.graph.arrange(x, [*_grouped(rest), last])
    return number, Layout(x.layout.dims, rest + last), rest


def _grouped(axes: Sequence[Axis]) -> List[List[Axis]]:
    """Return at most four groups of axes. Ops on rows work with any grouping."""
    return ([[axis] for axis in axes[:3]] + ([list(axes[3:])] if len(axes) > 3 else [])
            if axes else [])


def _linear(t: Translator, x: Any, weight: Parameter, bias: Any, transposed: bool) -> Value:
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


def _norm_rows(t: Translator, name: str, x: Any, shape: Sequence[int], parameters: Sequence[Any],
               eps: float) -> Value:
    x = t.value(x)
    need(all(isinstance(p, Parameter) for p in parameters), f"{name} with its parameters")
    dims = x.layout.dims
    merged = x.with_layout(x.layout.with_dims(
        [*dims[:-len(shape)], tuple(a for dim in dims[-len(shape):] for a in dim)]))
    number, layout, _ = rows(t, merged)
    size = count(layout.dims[-1])
    named = [t.parameter(p, [size], decays=False) for p in parameters]
    y = t.graph.add(name, [number], t.graph.shape(number), {"eps": eps}, named)
    return Value(y, Layout(dims, layout.order))


@op("layer_norm")
def layer_norm(t: Translator, x: Any, shape: Any, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, _: Any = None) -> Value:
    return _norm_rows(t, "layer_norm", x, shape, [weight, bias], eps)


@op("rms_norm")
def rms_norm(t: Translator, x: Any, shape: Any, weight: Any = None,
             eps: Optional[float] = None) -> Value:
    return _norm_rows(t, "rms_norm", x, shape, [weight],
                      torch.finfo(torch.float32).eps if eps is None else eps)


@op("softmax")
def softmax(t: Translator, x: Any, dim: int, dtype: Any = None) -> Any:
    if isinstance(x, Scores):
        return x.softmax(dim)
    x = t.value(x)
    dims = list(x.layout.dims)
    dim = x.layout.dim(dim)
    need(BATCH not in dims[dim], "softmax within a sample")
    last = x.with_layout(x.layout.with_dims(dims[:dim] + dims[dim + 1:] + [dims[dim]]))
    number, layout, _ = rows(t, last)
    y = t.graph.add("softmax", [number], t.graph.shape(number))
    return Value(y, Layout(dims, layout.order))


@op("embedding")
def embedding(t: Translator, weight: Any, ids: Any, padding_idx: int = -1,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    need(isinstance(weight, Parameter), "embedding of a parameter")
    need(not scale_grad_by_freq and not sparse, "embedding without scale_grad_by_freq and sparse")
    need(padding_idx < 0, "embedding without padding_idx")
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


# --- elementwise ---


def _unary(name: str, attributes: Optional[Dict[str, Any]] = None) -> Callable[..., Value]:
    def apply(t: Translator, x: Any, *_: Any, **__: Any) -> Value:
        return t.unary(name, x, attributes)
    return apply


for _name in ("sigmoid", "tanh", "silu"):
    OPS[_name] = _unary(_name)
OPS["relu"] = _unary("relu", {"slope": 0})


@op("leaky_relu")
def leaky_relu(t: Translator, x: Any, slope: float = 0.01) -> Value:
    return t.unary("relu", x, {"slope": slope})


@op("gelu")
def gelu(t: Translator, x: Any, approximate: str = "none") -> Value:
    return t.unary("gelu_tanh" if approximate == "tanh" else "gelu", x)


@op("dropout")
def dropout(t: Translator, x: Any, p: float, train: bool) -> Any:
    if not train or p == 0:
        return x
    need(t.training, "dropout in the mode, train or eval, of the whole module")
    need(p < 1, "dropout with p below 1")
    if isinstance(x, Scores):
        return x.dropout(p)
    t.has_dropout = True
    return t.unary("dropout", x, {"p": p})


@op("native_dropout")
def native_dropout(t: Translator, x: Any, p: float, train: bool) -> List[Any]:
    return [dropout(t, x, p, train), None]


@op("neg")
def neg(t: Translator, x: Any) -> Value:
    return t.unary("scale", x, {"slope": -1})


@op("mul", "multiply")
def mul(t: Translator, a: Any, b: Any) -> Any:
    if t.number(a) is not None:
        a, b = b, a
    factor = t.number(b)
    if factor is not None:
        return a.scaled(factor) if isinstance(a, Scores) else t.unary("scale", a, {"slope": factor})
    return t.binary("multiply", a, b)


@op("div", "true_divide")
def div(t: Translator, a: Any, b: Any, rounding_mode: Any = None) -> Any:
    factor = t.number(b)
    if factor is None or rounding_mode is not None:
        raise Unsupported("div by a number")
    return (a.scaled(1 / factor) if isinstance(a, Scores)
            else t.unary("scale", a, {"slope": 1 / factor}))


@op("pow")
def power(t: Translator, x: Any, exponent: Any) -> Value:
    need(exponent in (2, 3), "pow with an exponent of 2 or 3")
    x = t.value(x)
    square = t.binary("multiply", x, x)
    return square if exponent == 2 else t.binary("multiply", square, x)


@op("square")
def square(t: Translator, x: Any) -> Value:
    return power(t, x, 2)


@op("add")
def add(t: Translator, a: Any, b: Any, alpha: float = 1) -> Any:
    need(alpha == 1, "add with alpha of 1")
    if isinstance(b, Scores) or (isinstance(b, (Positions, Parameter))
                                 and not isinstance(a, Positions)):
        a, b = b, a
    if isinstance(a, Scores) and isinstance(b, Constant):
        return a.masked(b.tensor)
    if isinstance(a, (Positions, Parameter)):
        return t.add_positions(t.value(b), a)
    return t.binary("add", a, b)


@op("sub", "subtract")
def sub(t: Translator, a: Any, b: Any, alpha: float = 1) -> Value:
    need(alpha == 1, "sub with alpha of 1")
    return t.binary("subtract", a, b)


@op("rsub")
def rsub(t: Translator, a: Any, b: Any, alpha: float = 1) -> Value:
    return sub(t, b, a, alpha)


@op("where")
def where(t: Translator, condition: Any, a: Any, b: Any) -> Any:
    value = t.constant_number(b)
    need(isinstance(a, Scores) and isinstance(condition, Constant) and value is not None
         and value < -1e4, "where as the mask of attention's scores")
    return a.masked(condition.tensor)


@op("masked_fill")
def masked_fill(t: Translator, x: Any, mask: Any, value: Any) -> Any:
    number = t.constant_number(value)
    need(isinstance(x, Scores) and isinstance(mask, Constant) and number is not None
         and number < -1e4, "masked_fill as the mask of attention's scores")
    return x.masked(~mask.tensor)


@op("clone", "contiguous", "alias", "lift_fresh_copy", "lift_fresh")
def same(t: Translator, x: Any, *_: Any, **__: Any) -> Any:
    return x


@op("_to_copy", "to", "type_as")
def cast(t: Translator, x: Any, *_: Any, **__: Any) -> Any:
    need(t.node.meta["val"].dtype == torch.float32, "a cast to float32")
    return x


@op("detach")
def detach(t: Translator, x: Any) -> Value:
    return t.unary("detach", x)


# --- views ---


@op("view", "reshape", "_unsafe_view", "flatten", "unflatten", "view_as", "reshape_as", "squeeze")
def view(t: Translator, x: Any, *_: Any, **__: Any) -> Value:
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


@op("permute")
def permute(t: Translator, x: Any, dims: Sequence[int]) -> Value:
    value = t.value(x)
    return value.with_layout(value.layout.permute(dims))


@op("transpose", "swapaxes")
def transpose(t: Translator, x: Any, a: int, b: int) -> Value:
    value = t.value(x)
    return value.with_layout(value.layout.transpose(a, b))


@op("mT", "mH", "adjoint")
def turned(t: Translator, x: Any) -> Value:
    return transpose(t, x, -1, -2)


@op("movedim", "moveaxis")
def movedim(t: Translator, x: Any, source: Any, destination: Any) -> Value:
    x = t.value(x)
    need(isinstance(source, int) and isinstance(destination, int), "movedim of one dimension")
    order = list(range(len(x.layout.dims)))
    order.insert(x.layout.dim(destination), order.pop(x.layout.dim(source)))
    return t.value(x).with_layout(x.layout.permute(order))


@op("unsqueeze")
def unsqueeze(t: Translator, x: Any, dim: int) -> Value:
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
    need(step == 1, "slice with a step of 1")
    if BATCH in x.layout.dims[dim]:
        need(start in (None, 0) and (end is None or (isinstance(end, int) and end >= 2 ** 31)),
             "slice within a sample: dimension 0 is the samples'")
        return x
    size = count(x.layout.dims[dim])
    begin, stop = (0 if start is None else start), (size if end is None else end)
    begin, stop = (min(max(i + size if i < 0 else i, 0), size) for i in (begin, stop))
    return cut(t, x, dim, begin, stop)


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
    values = [t.value(x) for x in tensors]
    dim = values[0].layout.dim(dim)
    need(BATCH not in values[0].layout.dims[dim],
         "cat within a sample: dimension 0 is the samples'")
    joined = values[0]
    for value in values[1:]:
        joined = _join(t, joined, value, dim)
    return joined


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


@op("fill")
def fill(t: Translator, x: Any, value: Any) -> Any:
    shape = [size for _, size in t.shape_of_result()]
    number = t.number(value)
    need(number is not None, "fill with a number")
    return Constant(torch.full([1, *shape[1:]], number), batched=True)


@op("copy")
def copy(t: Translator, x: Any, source: Any, *_: Any) -> Any:
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


# --- sums ---


@op("mean")
def mean(t: Translator, x: Any, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    x = t.value(x)
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
    return scores if beta == 0 else add(t, scores, bias)


@op("scaled_dot_product_attention")
def attention(t: Translator, q: Any, k: Any, v: Any, mask: Any = None, p: float = 0.0,
              is_causal: bool = False, scale: Optional[float] = None,
              enable_gqa: bool = False) -> Any:
    need(mask is None or isinstance(mask, Constant),
         "attention with a mask that is the same for all samples")
    need(t.training or p == 0, "dropout in the mode, train or eval, of the whole module")
    q, k, v = t.value(q), t.value(k), t.value(v)
    if len(q.layout.dims) == 3:
        q, k, v = (x.with_layout(x.layout.unsqueeze(1)) for x in (q, k, v))
        y = attention(t, q, k, v, mask, p, is_causal, scale)
        return y.with_layout(y.layout.drop(1))
    scores = Scores(t, q, k.with_layout(k.layout.transpose(-1, -2)), scale=scale,
                    grouped=enable_gqa)
    scores.scale = scale if scale is not None else count(q.layout.dims[-1]) ** -0.5
    scores.causal = is_causal
    if mask is not None:
        scores = scores.masked(mask.tensor)
    return scores.softmax(-1).dropout(p).times(t, v)


# --- losses ---


@op("cross_entropy_loss")
def cross_entropy(t: Translator, logits: Any, targets: Any, weight: Any = None, reduction: int = 1,
                  ignore: int = -100, smoothing: float = 0.0) -> Loss:
    need(weight is None and reduction == 1 and smoothing == 0,
         "cross_entropy_loss with reduction mean, without weights and smoothing")
    x = t.value(logits)
    dims = x.layout.dims
    last = x.with_layout(x.layout.with_dims([dims[0], *dims[2:], dims[1]]))
    rest = [axis for axis in last.layout.logical() if axis not in dims[1]]
    number = t.graph.arrange(last, [rest, dims[1]] if rest else [dims[1]])
    found, layout = t.integers(targets)
    need(count(layout.order) == count(rest), "cross_entropy_loss of class indices")
    shape = t.graph.shape(found)
    number = t.graph.reshape(number, [*(shape if rest else []), count(dims[1])])
    return Loss("cross_entropy", [number, found], {"ignore": ignore})


@op("binary_cross_entropy_with_logits")
def bce(t: Translator, logits: Any, targets: Any, weight: Any = None, pos_weight: Any = None,
        reduction: int = 1) -> Loss:
    need(weight is None and pos_weight is None and reduction == 1,
         "binary_cross_entropy_with_logits with reduction mean, without weights")
    a, b = t.same_order(t.value(logits), t.value(targets))
    return Loss("bce_with_logits", [a, b], {})


def names() -> List[str]:
    """Return the names of the supported ops."""
    return sorted(OPS)
