# SPDX-License-Identifier: Apache-2.0
"""Translation of losses. A loss ends a module: the module may only multiply the loss by positive
numbers, and add it to other losses. For a mean, the engine first adds up all micro-batches and then
divides, so this is the mean over the whole mini-batch. A loss that the engine lacks is composed of
other ops (mean_losses.py)."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from cgpipe.torch import broadcast
from cgpipe.torch.functions import NO_LIMIT, function
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, count
from cgpipe.torch.mean_losses import Before, mean_of, products
from cgpipe.torch.registry import need, op
from cgpipe.torch.translator import Constant, Loss, Outside, Term, Translator

__all__: List[str] = []

NONE, MEAN, SUM = 0, 1, 2


def _reduced(reduction: int, attributes: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """Return the attributes of a loss node for a reduction."""
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
    """Return a loss that is a sum or mean over single elements."""
    attributes = _reduced(reduction, attributes)
    a, b = (t.whole(y) for y in broadcast.broadcast([t.value(x), t.value(targets)]))
    return _loss(name, t.same_order(a, b), attributes, weight)


def _of_differences(t: Translator, name: str, x: Any, targets: Any, reduction: int,
                    attributes: Optional[Dict[str, Any]] = None, weight: float = 1.0) -> Loss:
    """Return a loss that is symmetric in x and targets. The engine computes no gradient of targets.
    So if x and targets both need a gradient, the loss compares their difference with zeros."""
    a, b = t.value(x), t.value(targets)
    if t.graph.has_gradient(b.number):
        a, b = b, a
    if t.graph.has_gradient(b.number):
        a = t.binary("subtract", a, b)
        b = t.constant(Constant(torch.zeros((), dtype=torch.float32)), a.layout)
    return _of_elements(t, name, a, b, reduction, attributes, weight)


def _finished(t: Translator, y: Value, reduction: int) -> Any:
    """Return a loss per element, or the mean or sum of these losses."""
    return y if reduction == NONE else mean_of(t, y, sums=reduction == SUM)


@op("mse_loss")
def mse(t: Translator, x: Any, targets: Any, reduction: int = MEAN) -> Any:
    if reduction == NONE:
        d = t.binary("subtract", x, targets)
        return t.binary("multiply", d, d)
    return _of_differences(t, "mse", x, targets, reduction)


@op("l1_loss")
def l1(t: Translator, x: Any, targets: Any, reduction: int = MEAN) -> Any:
    if reduction == NONE:
        return function(t, "abs", t.binary("subtract", x, targets))
    return _of_differences(t, "smooth_l1", x, targets, reduction, {"beta": 0})


@op("smooth_l1_loss")
def smooth_l1(t: Translator, x: Any, targets: Any, reduction: int = MEAN,
              beta: float = 1.0) -> Any:
    if reduction == NONE:
        return (l1(t, x, targets, NONE) if beta == 0 else
                t.unary("scale", huber(t, x, targets, NONE, beta), {"slope": 1 / beta}))
    return _of_differences(t, "smooth_l1", x, targets, reduction, {"beta": beta})


@op("huber_loss")
def huber(t: Translator, x: Any, targets: Any, reduction: int = MEAN, delta: float = 1.0) -> Any:
    """The loss of an element is m (d - m / 2), with d = |x - target| and m = min(d, delta)."""
    if reduction == NONE:
        d = l1(t, x, targets, NONE)
        m = function(t, "hardtanh", d, -NO_LIMIT, delta)
        return t.binary("multiply", m,
                        t.binary("subtract", d, t.unary("scale", m, {"slope": 0.5})))
    return _of_differences(t, "smooth_l1", x, targets, reduction, {"beta": delta}, delta)


# --- binary cross-entropy ---


def _one_minus(t: Translator, x: Any) -> Value:
    return t.binary("add", t.unary("scale", x, {"slope": -1}), 1.0)


@op("binary_cross_entropy_with_logits")
def bce_with_logits(t: Translator, logits: Any, targets: Any, weight: Any = None,
                    pos_weight: Any = None, reduction: int = MEAN) -> Any:
    """With ``weight`` w and ``pos_weight`` p, the loss of a logit x and a target y is
    w ((1 - y) x + (1 + (p - 1) y) log(1 + exp(-x)))."""
    if weight is None and pos_weight is None and reduction != NONE:
        return _of_elements(t, "bce_with_logits", logits, targets, reduction)
    x, target = t.value(logits), t.value(targets)
    loss = function(t, "softplus", t.unary("scale", x, {"slope": -1}), 1.0, NO_LIMIT)
    if pos_weight is not None:
        need(isinstance(pos_weight, Constant), "pos_weight that is constant")
        more = t.binary("multiply", target, Constant(pos_weight.tensor - 1, pos_weight.samples))
        loss = t.binary("multiply", t.binary("add", more, 1.0), loss)
    y = t.binary("add", t.binary("multiply", _one_minus(t, target), x), loss)
    return _finished(t, products(t, [y, weight]), reduction)


def _of_probabilities_only(t: Translator, x: Value) -> Value:
    """Return x with NaN in place of elements outside of 0 to 1. For such elements, BCE_ONE or
    BCE_ZERO is NaN, so adding 0 times their sum makes x NaN."""
    own = t.unary("detach", x) if t.graph.has_gradient(x.number) else x
    both = t.binary("add", function(t, "bce_one", own), function(t, "bce_zero", own))
    return t.binary("add", x, t.unary("scale", both, {"slope": 0}))


@op("binary_cross_entropy")
def bce(t: Translator, x: Any, targets: Any, weight: Any = None, reduction: int = MEAN) -> Any:
    """The loss of a probability x and a target y is y BCE_ONE(x) + (1 - y) BCE_ZERO(x)."""
    x, target = t.value(x), _of_probabilities_only(t, t.value(targets))
    one = t.binary("multiply", function(t, "bce_one", x), target)
    zero = t.binary("multiply", function(t, "bce_zero", x), _one_minus(t, target))
    return _finished(t, products(t, [t.binary("add", one, zero), weight]), reduction)


# --- classes ---


@op("cross_entropy_loss")
def cross_entropy(t: Translator, logits: Any, targets: Any, weight: Any = None,
                  reduction: int = MEAN, ignore: int = -100, smoothing: float = 0.0) -> Any:
    if reduction == NONE or (weight is not None and smoothing > 0) or _is_float(targets):
        scores = t.apply("log_softmax", logits, min(1, len(t.value(logits).layout.dims) - 1))
        if _is_float(targets):
            return _of_probabilities(t, scores, targets, weight, reduction, smoothing)
        return _of_classes(t, scores, targets, weight, reduction, ignore, smoothing)
    return _softmax_loss(t, t.value(logits), targets, weight, reduction, ignore, smoothing)


def _softmax_loss(t: Translator, x: Value, targets: Any, weight: Any, reduction: int, ignore: int,
                  smoothing: float) -> Loss:
    """Return the engine's cross-entropy of logits."""
    attributes = _reduced(reduction, {"ignore": ignore})
    if smoothing:
        attributes["smoothing"] = smoothing
    dims = x.layout.dims
    last = _classes_last(x)
    rest = [axis for axis in last.layout.logical() if axis not in dims[1]]
    number = t.graph.arrange(last, [rest, dims[1]] if rest else [dims[1]])
    found, layout = t.integers(targets)
    need(count(layout.order) == count(rest), "cross_entropy_loss of class indices")
    shape = t.graph.shape(found)
    number = t.graph.reshape(number, [*(shape if rest else []), count(dims[1])])
    inputs = [number, found]
    if weight is not None:
        inputs.append(t.value(_weights(targets, weight, ignore)).number)
    return _loss("cross_entropy", inputs, attributes)


def _classes_last(x: Value) -> Value:
    dims = x.layout.dims
    return x.with_layout(x.layout.with_dims([dims[0], *dims[2:], dims[1]]))


@op("nll_loss_nd", "nll_loss")
def nll(t: Translator, scores: Any, targets: Any, weight: Any = None, reduction: int = MEAN,
        ignore: int = -100) -> Any:
    x = t.value(scores)
    logits = _logits_of(t, x)
    if logits is not None and reduction != NONE:
        return _softmax_loss(t, logits, targets, weight, reduction, ignore, 0.0)
    return _of_classes(t, x, targets, weight, reduction, ignore, 0.0)


def _logits_of(t: Translator, x: Value) -> Optional[Value]:
    """If a value is the result of a log_softmax over classes, return the argument of the
    log_softmax, else None."""
    node = next((node for node in t.graph.nodes if node["output"] == x.number), None)
    own = list(x.layout.dims[1])
    if (node is None or node.get("op") != "log_softmax" or not own
            or x.layout.order[-len(own):] != own
            or t.graph.shape(x.number)[-1] != count(own)):
        return None
    return Value(node["inputs"][0], x.layout)


def _of_classes(t: Translator, x: Value, targets: Any, weight: Any, reduction: int, ignore: int,
                smoothing: float) -> Any:
    """Return the loss of log-probabilities x [N, C, ...]: minus the sum of labels times x over the
    classes. PyTorch computes the labels before each step. For a mean, divide by the sum of the
    targets' weights."""
    node, shape = _of_integers(targets)
    classes = count(x.layout.dims[1])
    of_class = torch.ones(classes, dtype=torch.float32) if weight is None else _constant(weight)

    def labels(given: Any) -> Any:
        kept = (given != ignore).unsqueeze(-1)
        hot = torch.nn.functional.one_hot(torch.where(given != ignore, given, 0).long(), classes)
        return ((1 - smoothing) * hot + smoothing / classes) * of_class * kept
    found = Outside(Before(node, labels), [*shape, (False, classes)], torch.float32)
    y = t.unary("scale", t.apply("sum", t.binary("multiply", _classes_last(x), found), -1),
                {"slope": -1})
    if reduction != MEAN:
        return _finished(t, y, reduction)
    return mean_of(t, y, True, _weights(targets, Constant(of_class), ignore))


def _of_probabilities(t: Translator, x: Value, targets: Any, weight: Any, reduction: int,
                      smoothing: float) -> Any:
    """Return the loss of log-probabilities x for targets that are probabilities."""
    target = t.value(targets)
    if smoothing:
        target = t.binary("add", t.unary("scale", target, {"slope": 1 - smoothing}),
                          smoothing / count(x.layout.dims[1]))
    own = _classes_last(t.binary("multiply", x, target))
    y = products(t, [own, None if weight is None else Constant(_constant(weight))])
    return _finished(t, t.unary("scale", t.apply("sum", y, -1), {"slope": -1}), reduction)


@op("kl_div")
def kl_div(t: Translator, x: Any, targets: Any, reduction: int = MEAN,
           log_target: bool = False) -> Any:
    """Without ``log_target``, the loss of an element x and a target y is y log(y) - y x. The
    argument of log is at least 1.2e-38, so y log(y) is 0 for y = 0."""
    x, target = t.value(x), t.value(targets)
    if log_target:
        y = t.binary("multiply", function(t, "exp", target), t.binary("subtract", target, x))
    else:
        logs = function(t, "log", function(t, "clamp", target, 1.2e-38, NO_LIMIT))
        y = t.binary("multiply", target, t.binary("subtract", logs, x))
    return _finished(t, y, reduction)


@op("gather")
def gather(t: Translator, x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Value:
    """Gather one element from each row. The element is the sum of the row times a one-hot row,
    which is 1 at the index and 0 elsewhere."""
    x = t.value(x)
    node, shape = _of_integers(index)
    dim = x.layout.dim(dim)
    sizes = [(BATCH in axes, count(axes)) for axes in x.layout.dims]
    need(dim > 0 and shape == [*sizes[:dim], (False, 1), *sizes[dim + 1:]],
         "gather of one element along a dimension of a sample")
    size = sizes[dim][1]

    def hot(given: Any) -> Any:
        return torch.nn.functional.one_hot(given.squeeze(dim).long(), size).movedim(-1, dim).float()
    found = Outside(Before(node, hot), sizes, torch.float32)
    y: Value = t.apply("sum", t.binary("multiply", x, found), [dim], True)
    return y


def _is_float(x: Any) -> bool:
    return isinstance(x, Value) or (isinstance(x, (Outside, Constant)) and (
        x.dtype if isinstance(x, Outside) else x.tensor.dtype).is_floating_point)


def _constant(weight: Any) -> torch.Tensor:
    need(isinstance(weight, Constant), "a loss with constant weights of classes")
    return weight.tensor.to(torch.float32)  # type: ignore[no-any-return]


def _of_integers(targets: Any) -> Tuple[Any, Any]:
    """Return the node whose result is the targets, and the shape of the targets."""
    need(isinstance(targets, Outside) and isinstance(targets.node, torch.fx.Node),
         "a loss of targets that are inputs, or follow from them")
    return targets.node, targets.shape


def _weights(targets: Any, weight: Any, ignore: int) -> Outside:
    """Return the weights of targets. The weight of an ignored target is 0."""
    node, shape = _of_integers(targets)
    of_class = _constant(weight)

    def weights(given: Any) -> Any:
        kept = given != ignore
        return of_class[torch.where(kept, given, 0)] * kept
    return Outside(Before(node, weights), shape, torch.float32)
