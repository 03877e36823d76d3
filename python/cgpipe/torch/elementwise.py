# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops that work on elements."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

import torch

from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.choices import choose
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Layout, count
from cgpipe.torch.mean_losses import as_float
from cgpipe.torch.registry import OPS, need, op
from cgpipe.torch.translator import Constant, Loss, Parameter, Translator, Turned

__all__: List[str] = []


def _unary(name: str, attributes: Optional[Dict[str, Any]] = None) -> Callable[..., Value]:
    def apply(t: Translator, x: Any, *_: Any, **__: Any) -> Value:
        return t.unary(name, x, attributes)
    return apply


for _name in ("sigmoid", "tanh", "silu"):
    OPS[_name] = _unary(_name)
OPS["relu"] = _unary("relu", {"slope": 0})


@op("leaky_relu")
def leaky_relu(t: Translator, x: Any, slope: float = 0.01) -> Value:
    need(0 <= slope <= 1, "leaky_relu with a slope from 0 to 1")
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
    x = t.whole(x)
    need(x.layout.has_batch, "dropout of a tensor with samples")
    t.has_dropout = True
    return t.unary("dropout", x, {"p": p})


@op("native_dropout")
def native_dropout(t: Translator, x: Any, p: float, train: bool) -> List[Any]:
    return [dropout(t, x, p, train), None]


@op("neg")
def neg(t: Translator, x: Any) -> Any:
    return x.scaled(-1) if isinstance(x, Loss) else t.unary("scale", x, {"slope": -1})


@op("mul", "multiply")
def mul(t: Translator, a: Any, b: Any) -> Any:
    if t.number(a) is not None:
        a, b = b, a
    factor = t.number(b)
    if factor is not None:
        return (a.scaled(factor) if isinstance(a, (Loss, Scores))
                else t.unary("scale", a, {"slope": factor}))
    if isinstance(a, Parameter) and not isinstance(a, Turned):
        a, b = b, a
    if isinstance(b, Parameter) and not isinstance(b, Turned) and not isinstance(a, Parameter):
        return _scaled(t, t.value(a), b)
    if isinstance(a, Value) or isinstance(b, Value):
        a, b = as_float(a), as_float(b)
    return t.binary("multiply", a, b)


def _scaled(t: Translator, x: Value, weight: Parameter) -> Value:
    """Return a value times a parameter. If the parameter has one dimension, a depthwise convolution
    with a kernel of one pixel computes the product."""
    shape = list(weight.shape)
    places = [i - len(shape) for i, size in enumerate(shape) if size != 1]
    dims = x.layout.dims
    if (len(places) != 1 or len(dims) < -places[0] or BATCH in dims[places[0]]
            or count(dims[places[0]]) != shape[places[0]] or len(shape) > len(dims)
            or any(axis.repeated for axis in x.layout.logical())):
        return t.binary("multiply", x, weight)
    own = list(dims[places[0]])
    rest = [axis for axis in x.layout.order if axis not in own]
    size, pixels = count(own), count(rest)
    number = t.graph.reshape(t.graph.arrange(x, [rest, own]), [pixels, 1, size])
    named = t.parameter(weight, [1, 1, 1, size], decays=False)
    y = t.graph.add("conv2d", [number], [pixels, 1, size],
                    {"size": size, "bias": False, "kernel": [1, 1], "stride": [1, 1],
                     "padding": [0] * 4, "groups": size}, [named])
    return Value(y, Layout(dims, [*rest, *own]))


@op("add")
def add(t: Translator, a: Any, b: Any, alpha: float = 1) -> Any:
    need(alpha == 1, "add with alpha of 1")
    if isinstance(a, Loss) or isinstance(b, Loss):
        return a.plus(b) if isinstance(a, Loss) else b.plus(a)
    if isinstance(b, Scores) or (isinstance(b, (Positions, Parameter))
                                 and not isinstance(a, Positions)):
        a, b = b, a
    if isinstance(a, Scores) and isinstance(b, Constant):
        return a.masked(b.tensor)
    if isinstance(a, Parameter) and not _is_table(t, t.value(b), a):
        return t.binary("add", b, a)
    if isinstance(a, (Positions, Parameter)):
        return t.add_positions(t.value(b), a)
    return t.binary("add", a, b)


def _is_table(t: Translator, x: Value, weight: Parameter) -> bool:
    """Return whether the op POSITION can add a parameter to x. Samples must have two or more
    dimensions, and the parameter must have a number for each element of a sample."""
    sizes = x.layout.sizes()[1:]
    return (x.layout.has_batch and len(sizes) > 1 and not isinstance(weight, Turned)
            and [s for s in weight.shape if s != 1] == [s for s in sizes if s != 1])


@op("addcmul")
def addcmul(t: Translator, x: Any, a: Any, b: Any, value: float = 1) -> Any:
    product = mul(t, a, b)
    return add(t, x, product if value == 1 else mul(t, product, value))


@op("sub", "subtract")
def sub(t: Translator, a: Any, b: Any, alpha: float = 1) -> Any:
    need(alpha == 1, "sub with alpha of 1")
    if isinstance(a, Loss) and isinstance(b, Loss):
        return a.plus(b.scaled(-1))
    return t.binary("subtract", a, b)


@op("rsub")
def rsub(t: Translator, a: Any, b: Any, alpha: float = 1) -> Value:
    return sub(t, b, a, alpha)


@op("where")
def where(t: Translator, condition: Any, a: Any, b: Any) -> Any:
    value = t.constant_number(b)
    if (isinstance(a, Scores) and isinstance(condition, Constant) and value is not None
            and value < -1e4):
        return a.masked(condition.tensor)
    return choose(t, condition, a, b)


@op("masked_fill")
def masked_fill(t: Translator, x: Any, mask: Any, value: Any) -> Any:
    number = t.constant_number(value)
    if (isinstance(x, Scores) and isinstance(mask, Constant) and number is not None
            and number < -1e4):
        return x.masked(~mask.tensor)
    return choose(t, mask, value, x)


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
