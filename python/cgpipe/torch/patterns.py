# SPDX-License-Identifier: Apache-2.0
"""Find known ops that an exported program composes of elementary ops. A program is searched before
it is translated.

    0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))    gelu, approximated by tanh
    weight (x rsqrt(mean(x^2) + eps))                    rms_norm
"""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Set, Tuple

import torch

__all__ = ["find_patterns"]

Found = Tuple[Dict[Any, Tuple[str, List[Any]]], Set[Any]]


def _name(node: Any) -> str:
    target = getattr(node, "target", None)
    if isinstance(target, torch._ops.OpOverload):
        return str(target._schema.name.split("::")[-1])
    return ""


def _split(node: Any, name: str) -> Optional[Tuple[Any, Any]]:
    """If a node applies the op ``name`` to a tensor and a number, return (tensor, number)."""
    if _name(node) != name or len(node.args) < 2:
        return None
    a, b = node.args[:2]
    if isinstance(b, (int, float)):
        return a, float(b)
    return (b, float(a)) if isinstance(a, (int, float)) else None


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-5)


def _gelu(node: Any, absorbed: Set[Any]) -> Optional[Any]:
    """Return x if a node computes gelu(x) from elementary ops."""
    if _name(node) != "mul" or len(node.args) != 2:
        return None
    for half, rest in (node.args, reversed(node.args)):
        found = _split(half, "mul")
        one = _split(rest, "add")
        if (found is None or one is None or found[1] != 0.5 or one[1] != 1
                or _name(one[0]) != "tanh"):
            continue
        x, tanh = found[0], one[0]
        inner = _split(tanh.args[0], "mul")
        if inner is None or not _near(inner[1], math.sqrt(2 / math.pi)) or _name(inner[0]) != "add":
            continue
        for a, b in (inner[0].args[:2], reversed(inner[0].args[:2])):
            cubic = _split(b, "mul")
            cube = _split(cubic[0], "pow") if cubic else None
            if a is x and cubic and cube and _near(cubic[1], 0.044715) and cube == (x, 3.0):
                absorbed.update([half, rest, tanh, tanh.args[0], inner[0], b, cubic[0]])
                return x
    return None


def _rms(node: Any, absorbed: Set[Any]) -> Optional[List[Any]]:
    """Return the arguments of rms_norm if a node computes rms_norm from elementary ops."""
    if _name(node) != "mul" or len(node.args) != 2:
        return None
    for weight, scaled in (node.args, reversed(node.args)):
        if getattr(weight, "op", "") != "placeholder" or _name(_cast(scaled, [])) != "mul":
            continue
        path: List[Any] = []
        product = _cast(scaled, path)
        for x, root in (product.args[:2], reversed(product.args[:2])):
            if _name(root) != "rsqrt" or not hasattr(x, "meta"):
                continue
            plus = _split(root.args[0], "add")
            if plus is None:
                continue
            mean = plus[0]
            if _name(mean) != "mean" or list(mean.args[1]) != [-1] or not mean.args[2]:
                continue
            if _split(mean.args[0], "pow") != (x, 2.0):
                continue
            absorbed.update([*path, product, root, root.args[0], mean, mean.args[0]])
            shape = [x.meta["val"].shape[-1]]
            return [x, shape, weight, plus[1]]
    return None


def _cast(node: Any, path: List[Any]) -> Any:
    """Return the operand at the start of a chain of casts. The nodes of the chain are added to
    ``path``."""
    while _name(node) in ("to", "_to_copy", "type_as"):
        path.append(node)
        node = node.args[0]
    return node


def find_patterns(graph: Any) -> Found:
    """Find the nodes that compute a known op from elementary ops. Return a dictionary with the op's
    name and arguments for each such node. Also return the set of all inner nodes."""
    patterns: Dict[Any, Tuple[str, List[Any]]] = {}
    absorbed: Set[Any] = set()
    for node in graph.nodes:
        inner: Set[Any] = set()
        x = _gelu(node, inner)
        arguments = None if x is not None else _rms(node, inner)
        if x is None and arguments is None:
            continue
        users = {user for n in inner for user in n.users} - inner - {node}
        if any(not _name(user).startswith("_assert") for user in users):
            continue  # another node reads an inner node, so the inner node must stay
        patterns[node] = ("gelu", [x, "tanh"]) if x is not None else ("rms_norm", arguments or [])
        absorbed |= inner
    return patterns, absorbed
