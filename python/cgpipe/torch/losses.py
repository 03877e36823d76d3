# SPDX-License-Identifier: Apache-2.0
"""Translation of losses. A loss ends the module: it may be multiplied by numbers above 0 and added
to other losses. The engine divides the sum over all micro-batches, so a mean is that of the whole
mini-batch."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch

from cgpipe.torch import broadcast
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import count
from cgpipe.torch.registry import need, op
from cgpipe.torch.translator import Constant, Loss, Outside, Term, Translator

__all__: List[str] = []

MEAN, SUM = 1, 2


class _Weights:
    """A node that PyTorch evaluates before each step: weights of targets, 0 for ignored ones."""

    op = "call_function"

    def __init__(self, targets: Any, weights: Any, ignore: int) -> None:
        self.args, self.weights, self.ignore = (targets,), weights, ignore
        self.kwargs: Dict[str, Any] = {}

    def target(self, targets: Any) -> Any:
        kept = targets != self.ignore
        return self.weights[torch.where(kept, targets, 0)] * kept


def _reduced(reduction: int, attributes: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Return the attributes of a loss with a reduction."""
    need(reduction in (MEAN, SUM), "a loss with reduction mean or sum")
    return {**(attributes or {}), **({"sum": True} if reduction == SUM else {})}


def _loss(name: str, inputs: Sequence[int], attributes: Optional[Dict[str, Any]] = None,
          weight: float = 1.0) -> Loss:
    return Loss([Term(name, list(inputs), attributes or {}, weight)])


@op("broadcast_tensors")
def broadcast_tensors(t: Translator, tensors: Sequence[Any]) -> List[Value]:
    return broadcast.broadcast([t.value(x) for x in tensors])


def _of_elements(t: Translator, name: str, x: Any, targets: Any, reduction: int,
                 attributes: Optional[Dict[str, Any]] = None, weight: float = 1.0) -> Loss:
    """Return a loss of single elements."""
    attributes = _reduced(reduction, attributes)
    a, b = (t.whole(y) for y in broadcast.broadcast([t.value(x), t.value(targets)]))
    return _loss(name, t.same_order(a, b), attributes, weight)


def _of_differences(t: Translator, name: str, x: Any, targets: Any, reduction: int,
                    attributes: Optional[Dict[str, Any]] = None, weight: float = 1.0) -> Loss:
    """Return a loss that exchanging x and targets does not change. The engine computes no gradient
    of targets, so if both have one, the loss is that of their difference and zeros."""
    a, b = t.value(x), t.value(targets)
    if t.graph.has_gradient(b.number):
        a, b = b, a
    if t.graph.has_gradient(b.number):
        a = t.binary("subtract", a, b)
        b = t.constant(Constant(torch.zeros(())), a.layout)
    return _of_elements(t, name, a, b, reduction, attributes, weight)


@op("mse_loss")
def mse(t: Translator, x: Any, targets: Any, reduction: int = MEAN) -> Loss:
    return _of_differences(t, "mse", x, targets, reduction)


@op("l1_loss")
def l1(t: Translator, x: Any, targets: Any, reduction: int = MEAN) -> Loss:
    return _of_differences(t, "smooth_l1", x, targets, reduction, {"beta": 0})


@op("smooth_l1_loss")
def smooth_l1(t: Translator, x: Any, targets: Any, reduction: int = MEAN,
              beta: float = 1.0) -> Loss:
    return _of_differences(t, "smooth_l1", x, targets, reduction, {"beta": beta})


@op("huber_loss")
def huber(t: Translator, x: Any, targets: Any, reduction: int = MEAN, delta: float = 1.0) -> Loss:
    return _of_differences(t, "smooth_l1", x, targets, reduction, {"beta": delta}, delta)


@op("binary_cross_entropy_with_logits")
def bce(t: Translator, logits: Any, targets: Any, weight: Any = None, pos_weight: Any = None,
        reduction: int = MEAN) -> Loss:
    need(weight is None and pos_weight is None,
         "binary_cross_entropy_with_logits without weights")
    return _of_elements(t, "bce_with_logits", logits, targets, reduction)


@op("cross_entropy_loss")
def cross_entropy(t: Translator, logits: Any, targets: Any, weight: Any = None,
                  reduction: int = MEAN, ignore: int = -100, smoothing: float = 0.0) -> Loss:
    need(weight is None or smoothing == 0,
         "cross_entropy_loss with either weights or label smoothing")
    attributes = _reduced(reduction, {"ignore": ignore})
    if smoothing:
        attributes["smoothing"] = smoothing
    x = t.value(logits)
    dims = x.layout.dims
    last = x.with_layout(x.layout.with_dims([dims[0], *dims[2:], dims[1]]))
    rest = [axis for axis in last.layout.logical() if axis not in dims[1]]
    number = t.graph.arrange(last, [rest, dims[1]] if rest else [dims[1]])
    found, layout = t.integers(targets)
    need(count(layout.order) == count(rest), "cross_entropy_loss of class indices")
    shape = t.graph.shape(found)
    number = t.graph.reshape(number, [*(shape if rest else []), count(dims[1])])
    inputs = [number, found]
    if weight is not None:
        inputs.append(_weights(t, targets, weight, ignore))
    return _loss("cross_entropy", inputs, attributes)


def _weights(t: Translator, targets: Any, weight: Any, ignore: int) -> int:
    """Return the value of the targets' weights."""
    need(isinstance(weight, Constant) and isinstance(targets, Outside)
         and isinstance(targets.node, torch.fx.Node),
         "cross_entropy_loss with constant weights of targets that are inputs, or follow from them")
    node = _Weights(targets.node, weight.tensor.to(torch.float32), ignore)
    return t.value(Outside(node, targets.shape, torch.float32)).number
