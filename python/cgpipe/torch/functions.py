# SPDX-License-Identifier: Apache-2.0
"""Translation of aten ops to the engine's elementwise functions, and of ops that are composed of
such functions: quotients, powers, PReLU and GLU."""

from __future__ import annotations

import functools
import math
from typing import Any, Callable, Dict, List, Optional

import torch

from cgpipe.torch.attention import Scores
from cgpipe.torch.graph import Value
from cgpipe.torch.mean_losses import quotient
from cgpipe.torch.registry import OPS, need, op
from cgpipe.torch.translator import Constant, Loss, Outside, Parameter, Samples, Translator

__all__: List[str] = []

#: The functions of cgp_function (cgpipe/op.h), by number.
OF_Y = ("hardtanh", "sqrt", "rsqrt", "reciprocal", "exp")
OF_X = ("clamp", "hardsigmoid", "hardswish", "abs", "log", "elu", "softplus", "mish", "bce_one",
        "bce_zero")
NUMBERS = {name: number for number, name in enumerate(OF_Y + OF_X)}

#: A number that stands for no limit, because it is beyond the range of float32.
NO_LIMIT = 1e300


def function(t: Translator, name: str, x: Any, a: float = 0.0, b: float = 0.0) -> Value:
    """Add an elementwise function with two constants."""
    attributes: Dict[str, Any] = {"function": NUMBERS[name]}
    attributes.update((key, value) for key, value in (("slope", a), ("second", b)) if value)
    return t.unary("function_of_y" if name in OF_Y else "function", x, attributes)


def _plain(name: str) -> Callable[..., Value]:
    def apply(t: Translator, x: Any) -> Value:
        return function(t, name, x)
    return apply


for _name in ("sqrt", "rsqrt", "reciprocal", "exp", "hardsigmoid", "hardswish", "abs", "log",
              "mish"):
    OPS[_name] = _plain(_name)


# --- limits ---


@op("hardtanh")
def hardtanh(t: Translator, x: Any, low: float = -1.0, high: float = 1.0) -> Value:
    return function(t, "hardtanh", x, float(low), float(high))


@op("relu6")
def relu6(t: Translator, x: Any) -> Value:
    return hardtanh(t, x, 0.0, 6.0)


@functools.lru_cache(maxsize=None)
def _passes_at_limits() -> bool:
    """Return whether clamp passes a gradient at its limits. The answer depends on the version of
    PyTorch."""
    with torch.inference_mode(False), torch.enable_grad():
        x = torch.zeros(1, dtype=torch.float32, device="cpu", requires_grad=True)
        x.clamp(0.0, 1.0).backward(torch.ones(1, dtype=torch.float32, device="cpu"))
        return bool(x.grad.item() == 1)


@op("clamp", "clip")
def clamp(t: Translator, x: Any, low: Any = None, high: Any = None) -> Value:
    limits = [v for v in (low, high) if v is not None]
    need(bool(limits) and all(isinstance(v, (int, float)) and not math.isnan(v) for v in limits),
         "clamp between numbers, not tensors")
    need(len(limits) == 1 or low <= high, "clamp between limits that ascend")
    return function(t, "clamp" if _passes_at_limits() else "hardtanh", x, _limit(low, -NO_LIMIT),
                    _limit(high, NO_LIMIT))


def _limit(given: Optional[float], none: float) -> float:
    return none if given is None else max(-NO_LIMIT, min(NO_LIMIT, float(given)))


@op("clamp_min")
def clamp_min(t: Translator, x: Any, low: Any) -> Value:
    return clamp(t, x, low)


@op("clamp_max")
def clamp_max(t: Translator, x: Any, high: Any) -> Value:
    return clamp(t, x, None, high)


# --- activations ---


@op("elu")
def elu(t: Translator, x: Any, alpha: float = 1.0, scale: float = 1.0,
        input_scale: float = 1.0) -> Value:
    need(input_scale > 0, "elu with an input scale above 0")
    y = function(t, "elu", x, float(alpha), float(input_scale))
    return y if scale == 1 else t.unary("scale", y, {"slope": scale})


@op("celu")
def celu(t: Translator, x: Any, alpha: float = 1.0) -> Value:
    need(alpha > 0, "celu with alpha above 0")
    return elu(t, x, alpha, 1.0, 1 / alpha)


@op("selu")
def selu(t: Translator, x: Any) -> Value:
    """SELU (Klambauer et al. 2017, arXiv:1706.02515)."""
    return elu(t, x, 1.6732632423543772, 1.0507009873554805)


@op("softplus")
def softplus(t: Translator, x: Any, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """Thresholds above 80 are refused. The reason is that exp overflows at 88 in PyTorch's
    softplus, so its result is infinite between 88 and a larger threshold."""
    need(beta > 0 and threshold <= 80, "softplus with beta above 0 and a threshold of at most 80")
    return function(t, "softplus", x, float(beta), float(threshold))


@op("log_sigmoid")
def log_sigmoid(t: Translator, x: Any) -> Value:
    return _neg(t, function(t, "softplus", _neg(t, x), 1.0, NO_LIMIT))


def _neg(t: Translator, x: Any) -> Value:
    return t.unary("scale", x, {"slope": -1})


@op("prelu")
def prelu(t: Translator, x: Any, weight: Any) -> Value:
    """PReLU is max(x, 0) + weight min(x, 0). At 0, the first term has gradient 0, and the second
    has gradient ``weight``."""
    x = t.value(x)
    need(isinstance(weight, Parameter) and len(weight.shape) <= 1, "prelu with a parameter")
    rank = len(x.layout.dims)
    below = function(t, "clamp", x, -NO_LIMIT, 0.0)
    if rank > 2 and weight.shape not in ([], [1]):
        weight = Parameter(weight.name, [*weight.shape, *[1] * (rank - 2)])
    return t.binary("add", t.unary("relu", x, {"slope": 0}), t.apply("mul", below, weight))


@op("glu")
def glu(t: Translator, x: Any, dim: int = -1) -> Value:
    a, b = t.apply("chunk", x, 2, dim)
    return t.binary("multiply", a, t.unary("sigmoid", b))


# --- quotients and powers ---


@op("div", "true_divide", "divide")
def div(t: Translator, a: Any, b: Any, rounding_mode: Any = None) -> Any:
    """The quotient of two tensors is computed as a product with the reciprocal, so it is rounded
    once more."""
    need(rounding_mode is None, "div without rounding_mode")
    if isinstance(a, Loss) and isinstance(b, (Loss, Outside, Samples)):
        return quotient(t, a, b)
    divisor = t.number(b)
    if divisor is not None:
        return (a.scaled(1 / divisor) if isinstance(a, (Loss, Scores))
                else t.unary("scale", a, {"slope": 1 / divisor}))
    if isinstance(b, Constant):
        return t.binary("multiply", a, Constant(1 / b.tensor.to(torch.float32), b.samples))
    return t.apply("mul", a, function(t, "reciprocal", b))


@op("pow")
def power(t: Translator, x: Any, exponent: Any) -> Value:
    number = t.number(exponent)
    need(number in (-4, -3, -2, -1, -0.5, 0.5, 1, 2, 3, 4),
         "pow with an exponent of 1 to 4, 1/2, or one of these negated")
    assert number is not None
    if abs(number) == 0.5:
        return function(t, "sqrt" if number > 0 else "rsqrt", x)
    base = t.value(x) if number > 0 else function(t, "reciprocal", x)
    if abs(number) == 1:
        return base
    square = t.binary("multiply", base, base)
    return (square if abs(number) == 2
            else t.binary("multiply", square, base if abs(number) == 3 else square))


@op("square")
def square(t: Translator, x: Any) -> Value:
    return power(t, x, 2)
