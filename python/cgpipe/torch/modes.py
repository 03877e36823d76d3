# SPDX-License-Identifier: Apache-2.0
"""Find modules whose own code, not only PyTorch's layers, does something else in eval mode.

The engine has both modes of dropout and batch norms. So a graph that was captured in training mode
also serves evaluation, if the two modes differ only in these ops. Two kinds of forward need another
graph. One kind reads the mode itself. The other kind calls a dropout or a batch norm with a fixed
mode (F.dropout(x, p)), which is then also used in evaluation."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import Any, Dict, Iterator, List, Tuple

from torch import nn

from cgpipe.torch.layout import BATCH, Layout
from cgpipe.torch.watch import name_of, path_of

__all__ = ["Reads", "are_equal_in_evaluation", "has_own_modes", "noting_reads"]


class Reads:
    """Records whether code outside of PyTorch has read the mode of a module."""

    found = False


def _is_of_torch(name: str) -> bool:
    return name == "torch" or name.startswith("torch.")


@contextlib.contextmanager
def noting_reads() -> Iterator[Reads]:
    """Record whether code outside of PyTorch reads the attribute ``training`` of a module on this
    thread."""
    reads, thread = Reads(), threading.get_ident()

    def get(module: nn.Module) -> bool:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if threading.get_ident() == thread and not _is_of_torch(caller):
            reads.found = True
        if "training" not in module.__dict__:
            raise AttributeError("training")
        return bool(module.__dict__["training"])

    def put(module: nn.Module, value: bool) -> None:
        module.__dict__["training"] = value
    # A property takes precedence over an entry of a module's dictionary.
    nn.Module.training = property(get, put)
    try:
        yield reads
    finally:
        del nn.Module.training


def has_own_modes(graph: Any, module: nn.Module) -> bool:
    """Return whether code other than a PyTorch layer calls a dropout or a batch norm in training
    mode. (A PyTorch layer follows its own mode.)"""
    for node in graph.nodes:
        name = name_of(node)
        modal = (name in ("native_dropout", "_native_batch_norm_legit_functional")
                 or (name == "scaled_dot_product_attention" and _drops(node)))
        if modal:
            try:
                owner = module.get_submodule(path_of(node))
            except AttributeError:
                return True
            if not _is_of_torch(type(owner).__module__):
                return True
    return False


def _drops(node: Any) -> bool:
    p = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    return bool(p != 0)


# --- equal graphs ---


class _Graph:
    """The expressions of a captured module's outputs and losses in evaluation. Each expression has
    a number, and equal expressions have equal numbers in ``known`` (hash-consing)."""

    def __init__(self, captured: Any, known: Dict[Any, int]) -> None:
        self.captured, self.known = captured, known
        graph = captured.graph
        self.of: Dict[int, int] = {}
        self._inputs()
        for node in graph["nodes"]:
            inputs = [self.of[x] for x in node["inputs"]]
            self.of[node["output"]] = (inputs[0] if node.get("op", "").startswith("dropout")
                                       else self._number(self._node(node, inputs)))

    def _number(self, key: Any) -> int:
        return self.known.setdefault(key, len(self.known))

    def _inputs(self) -> None:
        captured = self.captured
        entries = iter(captured.graph["inputs"])
        for i, layout in enumerate(captured.inputs):
            if layout is not None:
                self.of[next(entries)["value"]] = self._number(("input", i))
        for hidden, entry in zip(captured.hidden, entries):
            key: Any = ("hidden", id(hidden))  # equal only to itself
            if hidden.rows is not None:
                key = ("rows", str(hidden.rows.dtype), tuple(hidden.rows.shape),
                       hidden.rows.contiguous().numpy().tobytes())
            self.of[entry["value"]] = self._number(key)

    def _node(self, node: Dict[str, Any], inputs: List[int]) -> Any:
        if "custom" in node:  # a region equals only itself
            return "custom", id(self.captured), node["output"]
        attributes = {key: value for key, value in node.get("attributes", {}).items() if key != "p"}
        names = [self.captured.parameters[p].name for p in node.get("parameters", ())]
        shape = self.captured.graph["values"][node["output"]]["shape"]
        return (node["op"], tuple(inputs), repr(sorted(attributes.items())), tuple(names),
                tuple(node.get("states", ())), tuple(shape))

    def outputs(self) -> List[Any]:
        captured = self.captured
        return [(self.of[captured.graph["outputs"][i]], _form(captured.layouts[i]))
                for kind, i in captured.outputs if kind == "output"]

    def losses(self) -> List[Any]:
        return [(loss["op"], [self.of[x] for x in loss["inputs"]], loss.get("attributes"),
                 loss["weight"]) for loss in self.captured.graph["losses"]]


def _form(layout: Layout) -> Any:
    """Return an object that represents a layout: objects of equal layouts are equal."""
    place: Dict[int, int] = {id(axis): i for i, axis in enumerate(layout.order)}
    dims: List[Tuple[Any, ...]] = [
        tuple((place.get(id(axis), -1), axis is BATCH, axis.size) for axis in dim)
        for dim in layout.dims]
    return tuple(dims), tuple(axis.size for axis in layout.order)


def are_equal_in_evaluation(a: Any, b: Any, losses: bool) -> bool:
    """Return whether two captures compute the same losses in evaluation. Without ``losses``,
    compare outputs instead. Results of regions always count as different."""
    known: Dict[Any, int] = {}
    one, other = _Graph(a, known), _Graph(b, known)
    return (one.losses() == other.losses() if losses else
            bool(one.outputs()) and one.outputs() == other.outputs())
