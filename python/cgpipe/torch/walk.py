# SPDX-License-Identifier: Apache-2.0
"""Translate the nodes of an exported program in order. A node is translated by the function of its
op (ops.py), becomes a constant, or is left to PyTorch, which runs it before each step or in a
region."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from cgpipe.errors import CgpipeError
from cgpipe.torch.attention import Positions, Scores
from cgpipe.torch.convex import Plan, Subgraph, is_skipped, reads_state
from cgpipe.torch.evaluate import Evaluator
from cgpipe.torch.export import finding_of
from cgpipe.torch.fallback import Nodes, Unread
from cgpipe.torch.finding import Finding
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, MixesSamples, Unlike
from cgpipe.torch.opaque import CALLS
from cgpipe.torch.norms import Statistic
from cgpipe.torch.ops import OPS
from cgpipe.torch.places import BEFORE, ENGINE, ONCE, TORCH, Place, is_added, place_of
from cgpipe.torch.region import output_operand
from cgpipe.torch.translator import (Constant, Loss, Outside, Parameter, Samples, Translator,
                                     Unsupported, nearest, samples_of, shape_of)
from cgpipe.torch.watch import CaptureError, TranslatorError, name_of, path_of

__all__ = ["UNKNOWN", "Layers", "Walk", "check_cuts", "raise_fault"]


# --- layers ---


class Layers:
    """The modules at which a stage may begin: the children of an nn.Sequential or, in another
    module, the elements of lists and sequences of modules."""

    def __init__(self, module: nn.Module, cut_at: Optional[Sequence[str]]) -> None:
        self.names: List[str] = []
        if cut_at is not None:
            self.names = list(cut_at)
        elif isinstance(module, nn.Sequential):
            self.names = [name for name, _ in module.named_children()]
        else:
            self._descend(module, "")

    def _descend(self, module: nn.Module, path: str) -> None:
        for name, child in module.named_children():
            own = f"{path}.{name}" if path else name
            lists = (nn.ModuleList, nn.ModuleDict)
            if (isinstance(child, (nn.Sequential, *lists))
                    or any(isinstance(m, lists) for m in child.modules())):
                self._descend(child, own)
            else:
                self.names.append(own)

    def of(self, path: str) -> Optional[str]:
        """Return the layer of a module by its path."""
        while path and path not in self.names:
            path = path.rpartition(".")[0]
        return path or None


def check_cuts(module: nn.Module, cut_at: Optional[Sequence[str]]) -> None:
    """Raise unless all of ``cut_at`` are paths of modules in ``module``."""
    if isinstance(cut_at, str):
        raise TypeError(f"cut_at: a list of paths is expected, got {cut_at!r}")
    known = [path for path, _ in module.named_modules() if path]
    for path in cut_at or ():
        if path not in known:
            near = nearest(path, known)
            raise CaptureError(f"cut_at: {path}: the module has none of this path"
                               + (f" (did you mean {near}?)" if near else ""))


# --- translation ---

UNKNOWN = "the engine has no such op"

#: Ops that read no element of their operand, and the number with which they fill a tensor. None:
#: the number is an argument of the op.
_FILLED = {"new_zeros": 0, "zeros_like": 0, "new_ones": 1, "ones_like": 1, "new_full": None,
           "full_like": None}


class _Unknown(Unsupported):
    """The engine has no such op."""


class Walk:
    """Translates the nodes of an exported program in order. ``plan`` has the nodes that PyTorch
    runs; None: PyTorch runs no node."""

    def __init__(self, t: Translator, layers: Layers, evaluator: Evaluator, regions: Nodes,
                 plan: Optional[Plan]) -> None:
        self.t, self.layers, self.evaluator, self.regions = t, layers, evaluator, regions
        self.plan = plan
        self.stateful: Set[Any] = set()
        self.env: Dict[Any, Any] = {}
        self.places: List[Place] = []
        #: For each recorded place of an op, the nodes of the graph that the op has added.
        self.added: List[List[Any]] = []
        #: ``refused`` has the error of each node that could not be translated. ``taken`` has those
        #: of these nodes that the plan gives to PyTorch.
        self.refused: Dict[Any, CaptureError] = {}
        self.taken: Set[Any] = set()
        #: Results of regions that the same region also reads. The graph has only a part of their
        #: gradients, so a proof cannot cut there.
        self.bypassed: Set[Any] = set()

    def run(self, module: Any, patterns: Dict[Any, Tuple[str, List[Any]]],
            absorbed: Set[Any]) -> Any:
        """Translate a graph; return its output."""
        for unit in module.graph.nodes if self.plan is None else self.plan.units():
            number = len(self.t.graph.nodes)
            if isinstance(unit, Subgraph):
                self._add_subgraph(unit)
            elif unit.op == "output":
                return None if self.refused else self._argument(unit.args[0])
            elif unit not in absorbed and unit not in self.env:
                self._translate(module, unit, patterns)
            nodes = self.t.graph.nodes[number:]
            self.added += [nodes] * (len(self.places) - len(self.added))
        return None

    def live_places(self) -> List[Place]:
        """Return the recorded places of ops that still have a node in the graph."""
        live = {id(node) for node in self.t.graph.nodes}
        return [place for place, nodes in zip(self.places, self.added)
                if not nodes or any(id(node) in live for node in nodes)]

    def _translate(self, module: Any, node: Any,
                   patterns: Dict[Any, Tuple[str, List[Any]]]) -> None:
        self.t.node = node
        layer = self.layers.of(path_of(node))
        missing = next((x for x in node.all_input_nodes if x in self.refused
                        and x not in self.env), None)
        if missing is not None and not is_skipped(node):
            self._refuse(node, self.refused[missing], missing in self.taken)
            return
        try:
            if node.op == "get_attr":
                self.env[node] = _attribute(module, node.target)
            elif node in patterns:
                name, arguments = patterns[node]
                self._begin(layer)
                self.env[node] = OPS[name](self.t, *[self._argument(a) for a in arguments])
                self.places.append(place_of(node, ENGINE, op=name))
            else:
                self._visit(node, layer)
        except (Unsupported, Unlike, MixesSamples) as error:
            self._refuse(node, _error(node, error), isinstance(error, Unsupported))
        except Exception as error:
            raise_fault(finding_of(node, ""), error)

    def _refuse(self, node: Any, error: CaptureError, certain: bool = True) -> None:
        """Leave a node to PyTorch. Continue with a value in place of the node's result, to find
        more nodes that PyTorch must run. If the error is not ``certain``, its cause may be another
        node, which the next walk leaves to PyTorch."""
        if self.plan is None:
            raise error
        if certain or not self.refused:
            if not self.plan.refuse(node, error):
                raise error
            self.taken.add(node)
        self._leave(node, error)

    def _leave(self, node: Any, error: CaptureError) -> None:
        """Continue with a value in place of a node's result."""
        assert self.plan is not None
        self.refused[node] = error
        self.env.pop(node, None)
        if self.plan.facts.is_carried(node):
            layout = output_operand(shape_of(node.meta["val"].shape)).layout
            value = self.env[node] = self.t.graph.input("a result of PyTorch", "f32", layout)
            self.t.graph.trained.add(value.number)

    def _add_subgraph(self, subgraph: Subgraph) -> None:
        self._begin(subgraph.layer)
        missing = [x for x in subgraph.arguments if x in self.refused and x not in self.env]
        try:
            if missing:
                raise Unread(missing[0])
            found = self.regions.add_subgraph(subgraph, self.env)
        except Unread as error:
            self._refuse(error.node, subgraph.error)
            for node in subgraph.outputs:
                self._leave(node, subgraph.error)
            return
        except (Unsupported, Unlike, MixesSamples):
            raise subgraph.error from None
        self.env.update(zip(subgraph.outputs, found))
        inside = set(subgraph.nodes)
        self.bypassed.update(node for node in subgraph.outputs if inside.intersection(node.users))
        self.places += [place_of(node, TORCH, str(subgraph.error)) for node in subgraph.nodes
                        if name_of(node) != "getitem"]

    def _begin(self, layer: Optional[str]) -> None:
        if layer is not None:
            self.t.graph.layer(layer)

    def _argument(self, x: Any) -> Any:
        return (torch.fx.node.map_arg(x, lambda n: self.env[n])
                if isinstance(x, (torch.fx.Node, list, tuple)) else x)

    def _visit(self, node: Any, layer: Optional[str]) -> None:
        name = name_of(node)
        if is_skipped(node):
            return
        if name == "sym_size" and node.args[0] not in self.env:
            self.env[node] = Samples(2)
            return
        if name == "getitem":
            container = self.env[node.args[0]]
            self.env[node] = (container[node.args[1]] if isinstance(container, (list, tuple))
                              else self._evaluate(node))
            return
        arguments = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: self.env[n])
        if node.target is torch.ops.cgpipe.region.default:
            self._begin(layer)
            self.env[node] = self.regions.add(node.args[1], arguments[0][0])
            call = CALLS[node.args[1]]
            self.places.append(Place(call.path, type(call.module).__name__, "", TORCH,
                                     str(call.reason)))
            return
        leaves = [x for x in torch.utils._pytree.tree_leaves(
            arguments, is_leaf=lambda x: x is None)]
        if any(isinstance(x, Statistic) for x in leaves) and "batch_norm" not in name:
            raise Unsupported("a running statistic that its batch norm alone reads")
        live = [x for x in leaves if isinstance(x, (Value, Scores, Positions, Parameter, Loss))]
        if live and name in _FILLED:
            self._fill(node, arguments[0])
            leaves, live = [], []
        if not live:
            self.env[node] = self._evaluate(node, leaves)
            where = {Outside: BEFORE, Constant: ONCE}.get(type(self.env[node]))
            if where is not None:
                self.places.append(place_of(node, where))
            return
        self._begin(layer)
        if name == "sym_size":
            self.env[node] = (Samples(2) if node.meta["val"].__class__ is not int
                              else node.meta["val"])
            return
        if name not in OPS:
            raise _Unknown
        if reads_state(node, self.stateful):
            raise Unsupported("a buffer that forward does not write to")
        args, kwargs = arguments
        self.env[node] = OPS[name](self.t, *args, **kwargs)
        _check_result(node, self.env[node])
        if not is_added(node):
            self.places.append(place_of(node, ENGINE))

    def _fill(self, node: Any, arguments: Sequence[Any]) -> None:
        name, value = name_of(node), node.meta["val"]
        number = _FILLED[name]
        if number is None:
            number = arguments[2 if name == "new_full" else 1]
        if not isinstance(number, (bool, int, float)):
            raise Unsupported(f"{name} with a number")
        self.evaluator.set_full(node, shape_of(value.shape), number, value.dtype)

    def _evaluate(self, node: Any, leaves: Sequence[Any] = ()) -> Any:
        """Evaluate a node that depends only on constants, or defer a node that depends on integer
        inputs."""
        value = node.meta.get("val")
        if any(_depends_on_values(x.meta.get("val")) for x in (node, *node.all_input_nodes)):
            raise Unsupported("a size that does not depend on the values of tensors")
        if isinstance(value, torch.SymBool):  # a condition on a size, which the graph checks
            return bool(value.node.hint)
        if isinstance(value, (torch.SymInt, int)) and not isinstance(value, bool):
            return (Samples(int(self.evaluator.example(node)))
                    if isinstance(value, torch.SymInt) else value)
        if any(isinstance(x, Outside) for x in leaves) or (
                name_of(node) == "getitem" and isinstance(self.env[node.args[0]], Outside)):
            if isinstance(value, Tensor):
                return Outside(node, shape_of(value.shape), value.dtype)
            return [Outside(_Item(node, i), shape_of(x.shape), x.dtype)
                    for i, x in enumerate(value)]
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise Unsupported("a random tensor: only dropout")
        found = self.evaluator.example(node)
        if isinstance(found, Tensor):
            return _constant(found, value)
        if isinstance(found, (list, tuple)):
            return [_constant(x, y) for x, y in zip(found, value)]
        return found


def _constant(found: Any, value: Any) -> Constant:
    """Return a result that is the same in each step. ``value`` is the trace's description of the
    result."""
    return Constant(found, samples_of(shape_of(value.shape)) if isinstance(value, Tensor) else None)


class _Item:
    """Element ``index`` of a node's result."""

    def __init__(self, node: Any, index: int) -> None:
        self.node, self.index = node, index


def raise_fault(found: Finding, error: Exception) -> NoReturn:
    """Raise the exception that a translation has raised. Two kinds of exception mean that something
    is not supported: exceptions of this package, and exceptions of torch.fx about sizes that depend
    on values. They are raised unchanged. Any other exception is a fault of this package and becomes
    a TranslatorError."""
    if isinstance(error, CgpipeError) or type(error).__module__.startswith("torch.fx"):
        raise error
    text = f"{type(error).__name__} in its translation: {error} (a fault of cgpipe: report it)"
    raise TranslatorError(str(replace(found, text=text))) from error


def _error(node: Any, error: Exception) -> CaptureError:
    """Return the exception for a node that is not covered."""
    text = (UNKNOWN if isinstance(error, _Unknown) else
            f"{error} is covered" if isinstance(error, Unsupported) else
            f"{error} is not covered" if isinstance(error, Unlike) else
            "mixes samples: dimension 0 is theirs, and stays in front")
    if node.target is torch.ops.cgpipe.region.default:
        text = f"PyTorch runs a module with {error}"
        return CaptureError(Finding(path_of(node), text=text), [path_of(node)])
    return CaptureError(finding_of(node, text), [path_of(node)])


def _check_result(node: Any, result: Any) -> None:
    """Raise unless a result has the same type and shape as PyTorch's result."""
    value = node.meta.get("val")
    if not isinstance(result, Value) or not isinstance(value, Tensor):
        return
    if value.dtype != torch.float32:
        raise Unsupported(f"{str(value.dtype).replace('torch.', '')} is computed: only float32")
    if name_of(node) in ("nll_loss_nd", "cross_entropy_loss"):
        return  # for these ops, the exported graph has a wrong shape with reduction="none"
    found = [(BATCH in dim, size) for dim, size in zip(result.layout.dims, result.layout.sizes())]
    if found != shape_of(value.shape):
        raise Unsupported(f"a result of shape {found}")


def _depends_on_values(number: Any) -> bool:
    """Return whether a number depends on the values of tensors."""
    return isinstance(number, (torch.SymInt, torch.SymBool, torch.SymFloat)) and bool(
        free_unbacked_symbols(number))


def _attribute(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part)
    return Constant(module) if isinstance(module, Tensor) else module
