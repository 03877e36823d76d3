# SPDX-License-Identifier: Apache-2.0
"""Translation of norms. A norm without parameters becomes an INSTANCE_NORM on an image. Elements
that are normalized together become the pixels of a channel, and there is a channel for each such
set of elements."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch

from cgpipe.torch.graph import Value
from cgpipe.torch.images import image_op
from cgpipe.torch.layout import Axis, Layout, count
from cgpipe.torch.ops import rows
from cgpipe.torch.registry import need, op
from cgpipe.torch.translator import Constant, Parameter, Translator, Unsupported

__all__ = ["Statistic"]


def _normalized(t: Translator, x: Value, own: Sequence[Axis], eps: float) -> Value:
    """Return a value with mean 0 and variance 1 over some of its axes."""
    rest = [axis for axis in x.layout.order if axis not in own]
    number = t.graph.reshape(t.graph.arrange(x, [own, rest]), [count(own), 1, count(rest)])
    y = t.graph.add("instance_norm", [number], [count(own), 1, count(rest)], {"eps": eps})
    return Value(y, Layout(x.layout.dims, [*own, *rest]))


def _affine(t: Translator, y: Value, weight: Any, bias: Any) -> Value:
    y = y if weight is None else t.apply("mul", y, weight)
    return y if bias is None else t.apply("add", y, bias)


def _of_channels(x: Value, parameter: Any) -> Any:
    """Return a parameter that has a number for each channel, in a shape that broadcasts to x.
    Channels are dimension 1 of x."""
    if parameter is None:
        return None
    need(isinstance(parameter, Parameter), "a norm with its parameters")
    return Parameter(parameter.name, [*parameter.shape, *[1] * (len(x.layout.dims) - 2)])


def _norm_rows(t: Translator, name: str, x: Any, shape: Sequence[int], parameters: Sequence[Any],
               eps: float) -> Value:
    x = t.whole(x)
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
    if weight is not None and bias is not None:
        return _norm_rows(t, "layer_norm", x, shape, [weight, bias], eps)
    x = t.whole(x)
    own = [axis for dim in x.layout.dims[-len(shape):] for axis in dim]
    return _affine(t, _normalized(t, x, own, eps), weight, bias)


@op("rms_norm")
def rms_norm(t: Translator, x: Any, shape: Any, weight: Any = None,
             eps: Optional[float] = None) -> Value:
    return _norm_rows(t, "rms_norm", x, shape, [weight],
                      torch.finfo(torch.float32).eps if eps is None else eps)


class Statistic:
    """Stands for the new value of a running statistic, which the engine computes."""


@op("_native_batch_norm_legit_functional")
def batch_norm_training(t: Translator, x: Any, weight: Any, bias: Any, mean: Any, var: Any,
                        train: bool, momentum: float, eps: float) -> List[Any]:
    return [batch_norm(t, x, weight, bias, mean, var, train, momentum, eps), None, None,
            Statistic(), Statistic()]


@op("_native_batch_norm_legit")
def batch_norm_stateless(t: Translator, x: Any, weight: Any, bias: Any, *_: Any) -> List[Any]:
    raise Unsupported("batch_norm with running statistics (track_running_stats=True)")


@op("_native_batch_norm_legit_no_training")
def batch_norm_evaluation(t: Translator, x: Any, weight: Any, bias: Any, mean: Any, var: Any,
                          momentum: float, eps: float) -> List[Any]:
    return [batch_norm(t, x, weight, bias, mean, var, False, momentum, eps), None, None]


@op("batch_norm")
def batch_norm(t: Translator, x: Any, weight: Any, bias: Any, mean: Any, var: Any, train: bool,
               momentum: float, eps: float, _: Any = None) -> Value:
    x = t.whole(x)
    need(isinstance(mean, Constant) and mean.buffer is not None and isinstance(var, Constant)
         and var.buffer is not None,
         "batch_norm with running statistics (track_running_stats=True)")
    if not train and (t.training or t.fixed_norms or weight is None):
        return _fixed_batch_norm(t, x, weight, bias, mean.tensor, var.tensor, eps)
    need(train == t.training, "batch_norm in the mode, train or eval, of the whole module")
    need(isinstance(weight, Parameter) and isinstance(bias, Parameter),
         "batch_norm with weight and bias (affine=True)")
    t.has_batch_norm = True
    size = weight.shape[0]
    named = [t.parameter(weight, [size], decays=False), t.parameter(bias, [size], decays=False)]
    states = t.statistics(mean.buffer, var.buffer, size)
    attributes = {"eps": eps, "momentum": momentum}
    if len(x.layout.dims) == 4:
        return image_op(t, x, "batch_norm", attributes, None, named, states)
    dims = x.layout.dims
    rest = [axis for dim in dims[2:] for axis in dim]
    number = t.graph.arrange(x, [rest, [], dims[1]])
    y = t.graph.add("batch_norm", [number], t.graph.shape(number), attributes, named, states)
    return Value(y, Layout(dims, [*rest, *dims[1]]))


def _fixed_batch_norm(t: Translator, x: Value, weight: Any, bias: Any, mean: Any, var: Any,
                      eps: float) -> Value:
    """Return a batch norm with fixed statistics: x weight / std + (bias - mean weight / std)."""
    ones = [1] * (len(x.layout.dims) - 2)
    scale = Constant(torch.rsqrt(var + eps).reshape([-1, *ones]))
    shift = Constant((-mean * torch.rsqrt(var + eps)).reshape([-1, *ones]))
    factor, offset = _of_channels(x, weight), _of_channels(x, bias)
    if factor is None:
        return t.binary("add", t.binary("multiply", x, scale), shift)
    y = t.binary("multiply", x, t.binary("multiply", factor, scale))
    moved = t.binary("multiply", factor, shift)
    return t.binary("add", y, moved if offset is None else t.binary("add", moved, offset))


@op("group_norm")
def group_norm(t: Translator, x: Any, groups: int, weight: Any = None, bias: Any = None,
               eps: float = 1e-5, _: Any = None) -> Value:
    x = t.whole(x)
    if weight is None or bias is None:
        return _plain_group_norm(t, x, groups, eps)
    size = weight.shape[0]
    named = [t.parameter(weight, [size], decays=False), t.parameter(bias, [size], decays=False)]
    dims = x.layout.dims
    rest = [axis for dim in dims[2:] for axis in dim]
    groups_of = [rest[:1], rest[1:]]
    number = t.graph.arrange(x, [*groups_of, dims[1]])
    y = t.graph.add("group_norm", [number], t.graph.shape(number), {"groups": groups, "eps": eps},
                    named)
    return Value(y, Layout(dims, [*rest, *dims[1]]))


def _plain_group_norm(t: Translator, x: Value, groups: int, eps: float) -> Value:
    shape = [(False, count(dim)) for dim in x.layout.dims]
    shape[0] = (True, 1)
    apart = x.layout.view([shape[0], (False, groups), (False, shape[1][1] // groups), *shape[2:]])
    own = [axis for dim in apart.dims[2:] for axis in dim]
    y = _normalized(t, Value(x.number, apart), own, eps)
    return y.with_layout(y.layout.view(shape))


@op("instance_norm")
def instance_norm(t: Translator, x: Any, weight: Any, bias: Any, mean: Any, var: Any,
                  use_input: bool, momentum: float, eps: float, _: Any = None) -> Value:
    need(use_input and mean is None and var is None, "instance_norm without running statistics")
    x = t.whole(x)
    own = [axis for dim in x.layout.dims[2:] for axis in dim]
    y = (image_op(t, x, "instance_norm", {"eps": eps}) if len(x.layout.dims) == 4
         else _normalized(t, x, own, eps))
    return _affine(t, y, _of_channels(x, weight), _of_channels(x, bias))
