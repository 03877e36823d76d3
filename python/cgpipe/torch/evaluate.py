# SPDX-License-Identifier: Apache-2.0
"""Evaluate nodes that stay outside the graph. Constants are evaluated once. Integers that depend on
inputs are evaluated before each step."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

import torch
from torch import Tensor

__all__ = ["Computed", "Evaluator"]


class Computed:
    """A node whose value is a function of the value of another node."""

    op = "computed"

    def __init__(self, function: Callable[[Tensor], Tensor], node: Any) -> None:
        self.function, self.source = function, node


class Evaluator:
    """Evaluates single nodes of an exported program, and the nodes that they depend on."""

    def __init__(self, module: Any, examples: Sequence[Tensor]) -> None:
        self.module, self.examples = module, list(examples)
        self._fixed: Dict[Any, Any] = {}  # values of buffers
        self._inputs: Dict[Any, int] = {}
        self._full: Dict[Any, Tuple[Any, Any, torch.dtype]] = {}
        self._example: Dict[Any, Any] = {}

    def set(self, node: Any, value: Any) -> None:
        """Set the value of a placeholder."""
        self._fixed[node] = value

    def set_input(self, node: Any, index: int) -> None:
        """Let a placeholder stand for input number ``index`` of the module."""
        self._inputs[node] = index

    def set_full(self, node: Any, shape: Sequence[Tuple[bool, int]], number: Any,
                 dtype: torch.dtype) -> None:
        """Set the value of a node to a tensor whose elements are all ``number``. ``shape`` has a
        pair for each dimension: whether the dimension counts the samples, and its size for one
        sample."""
        self._full[node] = (shape, number, dtype)

    def forget(self, everything: bool) -> None:
        """Free the values that were computed for the example. If ``everything``, free the exported
        program too. Afterwards, nothing can be evaluated."""
        self._example.clear()
        self.examples = []
        if everything:
            self.module = None
            self._fixed, self._inputs, self._full = {}, {}, {}

    def example(self, node: Any) -> Any:
        """Return the value that a node has for the example inputs."""
        return self._value(node, self._example, self.examples)

    def run(self, nodes: Sequence[Any], inputs: Sequence[Tensor]) -> Dict[Any, Tensor]:
        """Return the values of nodes for these inputs."""
        memo: Dict[Any, Any] = {}
        found: Dict[Any, Tensor] = {}
        with torch.no_grad():
            for node in nodes:
                found[node] = self._value(node, memo, list(inputs))
        return found

    def _value(self, node: Any, memo: Dict[Any, Any], inputs: List[Tensor]) -> Any:
        if hasattr(node, "index") and hasattr(node, "node"):
            return self._value(node.node, memo, inputs)[node.index]
        if node in memo:
            return memo[node]
        if isinstance(node, Computed):
            memo[node] = node.function(self._value(node.source, memo, inputs))
            return memo[node]
        if node in self._full:
            shape, number, dtype = self._full[node]
            value = torch.full([n * (inputs[0].shape[0] if batch else 1) for batch, n in shape],
                               number, dtype=dtype)
        elif node in self._fixed:
            value = self._fixed[node]
        elif node in self._inputs:
            value = inputs[self._inputs[node]]
        elif node.op == "get_attr":
            value = self.module
            for part in node.target.split("."):
                value = getattr(value, part)
        else:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs),
                                                 lambda n: self._value(n, memo, inputs))
            with torch.no_grad():
                value = node.target(*args, **kwargs)
        memo[node] = value
        return value
