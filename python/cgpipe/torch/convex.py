# SPDX-License-Identifier: Apache-2.0
"""The choice of the nodes of a captured module that PyTorch runs inside the pipeline.

    x --> linear --> cumsum --> neg --> sort --> getitem --> linear
                     |--- one region, of four nodes ---|

Each node that the engine does not cover begins a set. The set grows until only float32 tensors with
samples cross its border. Then it is made convex: no path leaves the set and comes back. So the set
can be one node of the pipeline. Two sets are merged if only views and elementwise ops lie between
them, and if the merged set has fewer elements on its border. All nodes of a set belong to one
layer, so a stage can begin at any layer.

Values that depend only on parameters are computed again in each set that reads them."""

from __future__ import annotations

import heapq
import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

import torch
from torch import Tensor

from cgpipe._op import MAX
from cgpipe.torch.translator import Unsupported, shape_of
from cgpipe.torch.watch import CaptureError, name_of, path_of

__all__ = ["Plan", "Subgraph", "is_region", "is_skipped", "multiple_of_samples", "reads_state",
           "stateful_nodes"]

#: Prefixes of the names of ops without a result. These ops only check conditions that the guards
#: check too.
_SKIPPED = ("_assert", "sym_constrain", "_guard", "assert_")
#: Ops that take sizes, so a number among their arguments may be the number of samples.
_SIZED = {"view", "reshape", "_unsafe_view", "expand", "new_zeros", "new_ones", "new_full"}
_VIEWS = {"view", "reshape", "_unsafe_view", "expand", "permute", "transpose", "t", "squeeze",
          "unsqueeze", "slice", "select", "split", "split_with_sizes", "unbind", "getitem", "alias",
          "clone", "contiguous", "detach", "flatten", "unflatten", "movedim"}
_ELEMENTWISE = {"add", "sub", "rsub", "mul", "div", "neg", "pow", "square", "sqrt", "rsqrt", "exp",
                "log", "abs", "relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "clamp",
                "where", "masked_fill", "maximum", "minimum", "_to_copy", "to", "type_as", "gt",
                "ge", "lt", "le", "eq", "ne", "logical_not", "logical_and", "logical_or"}
#: Ops that have a state, or that mix samples in training.
_BATCH_NORM = ("batch_norm", "_native_batch_norm", "native_batch_norm", "cudnn_batch_norm")


def is_skipped(node: Any) -> bool:
    """Return whether a node has no result and only checks a condition that the guards check too."""
    return name_of(node).startswith(_SKIPPED)


def multiple_of_samples(value: Any) -> Optional[int]:
    """If a number in a graph is k times the number of samples, return k, else None."""
    try:
        (batch, size), = shape_of([value])
    except (AttributeError, Unsupported):
        return None
    return size if batch else None


@dataclass
class Subgraph:
    """Nodes that PyTorch runs as one region."""

    #: The nodes in order. Nodes that depend on parameters alone may also run in other regions.
    nodes: List[Any]
    #: What the nodes read from outside. ``arguments`` has tensors and numbers, including numbers
    #: that count samples. ``parameters`` has parameters.
    arguments: List[Any]
    parameters: List[Any]
    #: Nodes whose results are read outside of the subgraph.
    outputs: List[Any]
    #: ``error`` says why the engine does not cover the first node. ``path`` is the path of the
    #: innermost module that contains all nodes.
    error: CaptureError
    path: str
    layer: Optional[str]
    needs: List[Any] = field(default_factory=list)


Unit = Union[Subgraph, Any]


class _Facts:
    """Facts about a graph that do not change during its translation."""

    def __init__(self, program: Any, layer_of: Callable[[str], Optional[str]],
                 patterned: Set[Any]) -> None:
        kinds = {spec.arg.name: spec.kind.name for spec in program.graph_signature.input_specs}
        self.nodes: List[Any] = list(program.graph_module.graph.nodes)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        self.patterned = patterned
        self.parameters = {n for n in self.nodes
                           if n.op == "placeholder" and kinds.get(n.name) == "PARAMETER"}
        #: ``varying`` has the nodes that depend on the inputs. ``live`` has the nodes that depend
        #: on a parameter or on an input of floats: their results are values of the graph.
        self.varying: Set[Any] = set()
        self.live: Set[Any] = set(self.parameters)
        self.stateful = stateful_nodes(program)
        #: ``run`` says how often the layer changes before a node. ``layer`` has the layer for each
        #: of these counts.
        self.run: Dict[Any, int] = {}
        self.layer: Dict[int, Optional[str]] = {}
        current: Optional[str] = None
        run = 0
        for node in self.nodes:
            value = node.meta.get("val")
            if node.op == "placeholder" and kinds.get(node.name) == "USER_INPUT":
                self.varying.add(node)
                if isinstance(value, Tensor) and value.is_floating_point():
                    self.live.add(node)
            if node.op != "call_function" or self.is_number(node):
                continue
            if any(n in self.varying for n in node.all_input_nodes):
                self.varying.add(node)
            if any(n in self.live for n in node.all_input_nodes) or is_region(node):
                self.live.add(node)
            layer = layer_of(path_of(node))
            if layer is not None and layer != current:
                run, current = run + (current is not None), layer
            self.run[node], self.layer[run] = run, current

    @staticmethod
    def is_number(node: Any) -> bool:
        """Return whether a node's result is a number that the guards determine."""
        return isinstance(node.meta.get("val"),
                          (int, float, torch.SymInt, torch.SymBool, torch.SymFloat))

    @staticmethod
    def has_samples(node: Any) -> bool:
        """Return whether a result has a dimension of samples."""
        return any(isinstance(size, torch.SymInt) for x in _tensors(node) for size in x.shape)

    @staticmethod
    def is_carried(node: Any) -> bool:
        """Return whether a result can be a value of the graph: float32, not empty, with samples in
        one dimension."""
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or value.dtype != torch.float32 or 0 in value.shape:
            return False
        try:
            return sum(batch for batch, _ in shape_of(value.shape)) == 1
        except Unsupported:
            return False

    @staticmethod
    def elements(node: Any) -> int:
        """Return the number of elements of a result for one sample."""
        total = 0
        for x in _tensors(node):
            size = 1
            for n in x.shape:
                size *= n if isinstance(n, int) else multiple_of_samples(n) or 1
            total += size
        return total

    def is_allowed(self, node: Any) -> bool:
        """Return whether PyTorch may run a node as part of a region. The node must not write to
        tensors, read what forward writes to, or draw random numbers. Only the shape of its result
        may depend on the number of samples."""
        if node.op != "call_function" or node in self.patterned or self.is_number(node):
            return False
        if node.target is operator.getitem:
            return bool(self.is_allowed(node.args[0]))
        target, name = node.target, name_of(node)
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            return False
        if reads_state(node, self.stateful):
            return False
        if target._schema.is_mutable or name.startswith(_BATCH_NORM) or "val" not in node.meta:
            return False
        if torch.Tag.nondeterministic_seeded in target.tags and not _is_certain(node):
            return False
        numbers = [n.meta["val"] for n in node.all_input_nodes if self.is_number(n)]
        return all(isinstance(n, (int, float)) or (name in _SIZED
                                                   and multiple_of_samples(n) is not None)
                   for n in numbers)

    def hull(self, nodes: Set[Any]) -> Set[Any]:
        """Return these nodes, and all nodes on a path from one of these nodes to another."""
        places = sorted(self.index[n] for n in nodes)
        between = self.nodes[places[0]:places[-1] + 1]
        after: Set[Any] = set()
        for node in between:
            if node in nodes or (not self.is_number(node)
                                 and any(n in after for n in node.all_input_nodes)):
                after.add(node)
        found: Set[Any] = set()
        for node in reversed(between):
            if node in nodes or (node in after and any(user in found for user in node.users)):
                found.add(node)
        return found

    def ordered(self, nodes: Iterable[Any]) -> List[Any]:
        return sorted(nodes, key=self.index.__getitem__)


def stateful_nodes(program: Any) -> Set[Any]:
    """Return the nodes that depend on buffers to which forward writes. Statistics of batch norms do
    not count."""
    signature = program.graph_signature
    targets = set(signature.buffers_to_mutate.values())
    written = {spec.arg.name for spec in signature.input_specs if spec.target in targets}
    found: Set[Any] = set()
    for node in program.graph_module.graph.nodes:
        if (node.op == "placeholder" and node.name in written
                or reads_state(node, found) and node.op == "call_function"):
            found.add(node)
    return found


def reads_state(node: Any, stateful: Set[Any]) -> bool:
    """Return whether a node other than a batch norm reads one of these nodes."""
    return (not name_of(node).startswith(_BATCH_NORM)
            and any(n in stateful for n in node.all_input_nodes))


def is_region(node: Any) -> bool:
    """Return whether a node is the call of a module that PyTorch runs as a whole."""
    return node.target is torch.ops.cgpipe.region.default


def _tensors(node: Any) -> List[Tensor]:
    value = node.meta.get("val")
    return [x for x in (value if isinstance(value, (list, tuple)) else [value])
            if isinstance(x, Tensor)]


def _is_certain(node: Any) -> bool:
    """Return whether an op that may draw random numbers draws none with these arguments."""
    if name_of(node) != "scaled_dot_product_attention":
        return False
    p = node.args[4] if len(node.args) > 4 else node.kwargs.get("dropout_p", 0.0)
    return bool(p == 0)


def _common(paths: Sequence[str]) -> str:
    """Return the path of the innermost module that contains the modules at all of these paths."""
    parts = [path.split(".") if path else [] for path in paths]
    found = []
    for names in zip(*parts):
        if len(set(names)) > 1:
            break
        found.append(names[0])
    return ".".join(found)


class Plan:
    """The nodes that the engine does not cover, and the sets that PyTorch runs because of them."""

    def __init__(self, program: Any, layer_of: Callable[[str], Optional[str]],
                 patterned: Set[Any]) -> None:
        self.facts = _Facts(program, layer_of, patterned)
        self._uncovered: Dict[Any, CaptureError] = {}
        self.changed = False

    # --- nodes that are not covered ---

    def refuse(self, node: Any, error: CaptureError) -> bool:
        """Begin a set with a node that PyTorch must run. Return whether PyTorch can run the
        node."""
        if node in self._uncovered:
            return True
        facts = self.facts
        if not facts.is_allowed(node):
            return False
        if not facts.has_samples(node):
            # If the node depends on parameters alone, each set that reads it computes it again.
            return node not in facts.varying and node in facts.live and all(
                user.op != "output" and self.refuse(user, error) for user in node.users
                if not is_skipped(user))
        self._uncovered[node] = error
        self.changed = True
        return True

    # --- sets ---

    def units(self) -> List[Unit]:
        """Return the nodes and the sets in an order in which they can run.

        Raises:
            CaptureError: A set would contain a node that PyTorch cannot run as part of a region.
        """
        self.changed = False
        sets: List[Set[Any]] = []
        for node in self.facts.ordered(self._uncovered):
            if not any(node in own for own in sets):
                self._grow(sets, {node}, self._uncovered[node])
        self._merge(sets)
        found = [self._subgraph(own) for own in sets]
        unread = {node for s in found if not s.outputs for node in s.needs}
        return self._in_order([s for s in found if s.outputs], unread)

    def _grow(self, sets: List[Set[Any]], own: Set[Any], error: CaptureError) -> None:
        """Add the smallest set that contains ``own`` and can be a region."""
        size = 0
        while len(own) != size:
            size = len(own)
            own = self.facts.hull(own | self._must_join(own, error))
            for other in [other for other in sets if other & own]:
                sets.remove(other)
                own |= other
            if not self._is_possible(own):
                raise error
        sets.append(own)

    def _is_possible(self, own: Set[Any]) -> bool:
        return (all(self.facts.is_allowed(node) for node in own)
                and len({self.facts.run[node] for node in own}) == 1)

    def _must_join(self, own: Set[Any], error: CaptureError) -> Set[Any]:
        """Return the neighbours that must join a set, because the values between these neighbours
        and the set cannot cross a border."""
        facts, found = self.facts, set()
        for node in own:
            carried = facts.is_carried(node)
            for user in node.users:
                if user in own or carried or is_skipped(user) or facts.is_number(user):
                    continue
                if user.op == "output":
                    raise error
                found.add(user)
            for x in node.all_input_nodes:
                if x in own or x.op != "call_function" or x not in facts.live:
                    continue
                if facts.has_samples(x) and not facts.is_carried(x):
                    found.add(x)
                elif x in facts.varying and not facts.has_samples(x):
                    raise error  # the node mixes samples, so no region can run it
        return found

    # --- sets that become one ---

    def _merge(self, sets: List[Set[Any]]) -> None:
        while self._merge_two(sets):
            pass

    def _merge_two(self, sets: List[Set[Any]]) -> bool:
        """Join the first two sets for which one joined set is better than two. Return False if
        there are no such sets."""
        first = self.facts.index
        sets.sort(key=lambda own: min(first[node] for node in own))
        for own in sets:
            for other in self._neighbours(own, sets):
                parts, joined = self._joined(own, other, sets)
                if joined is not None:
                    for part in parts:
                        sets.remove(part)
                    sets.append(joined)
                    return True
        return False

    def _neighbours(self, own: Set[Any], sets: List[Set[Any]]) -> List[Set[Any]]:
        """Return the sets that read results of a set directly, or through views and elementwise ops
        only."""
        of = {node: other for other in sets for node in other if other is not own}
        found: List[Set[Any]] = []
        pending = self.facts.ordered({user for node in own for user in node.users} - own)
        seen = set(pending)
        while pending:
            node = pending.pop(0)
            if node in of:
                if not any(of[node] is other for other in found):
                    found.append(of[node])
            elif self._is_glue(node):
                users = [user for user in node.users if user not in seen and user not in own]
                seen.update(users)
                pending += users
        return found

    def _is_glue(self, node: Any) -> bool:
        return name_of(node) in _VIEWS | _ELEMENTWISE and self.facts.is_allowed(node)

    def _joined(self, own: Set[Any], other: Set[Any],
                sets: List[Set[Any]]) -> Tuple[List[Set[Any]], Optional[Set[Any]]]:
        """Return the sets to join, and the joined set (None if the sets should not be joined)."""
        parts, joined = [own, other], self.facts.hull(own | other)
        size = 0
        while len(joined) != size:
            size = len(joined)
            parts = [part for part in sets if part & joined]
            try:
                must = self._must_join(joined, CaptureError(""))
            except CaptureError:
                return [], None
            joined = self.facts.hull(joined.union(must, *parts))
        glue = joined.difference(*parts)
        work = sum(self.facts.elements(n) for n in glue if name_of(n) not in _VIEWS)
        inputs, moved = self._border(joined)
        better = work + moved <= sum(self._border(part)[1] for part in parts)
        if not better or not self._is_possible(joined) or not all(map(self._is_glue, glue)):
            return [], None
        return (parts, joined) if inputs < MAX else ([], None)

    def _border(self, own: Set[Any]) -> Tuple[int, int]:
        """Return the number of values that a set reads, and the number of elements per sample that
        cross its border."""
        facts = self.facts
        read = {x for node in own for x in node.all_input_nodes
                if x not in own and not facts.is_number(x) and facts.has_samples(x)}
        written = [node for node in own if self._is_read(node, own)]
        return len(read), sum(facts.elements(node) for node in [*read, *written])

    def _is_read(self, node: Any, own: Set[Any]) -> bool:
        """Return whether a node outside of a set reads a node's result."""
        return any(user not in own and not is_skipped(user) and not self.facts.is_number(user)
                   for user in node.users)

    # --- results ---

    def _subgraph(self, own: Set[Any]) -> Subgraph:
        facts = self.facts
        first = facts.ordered(node for node in own if node in self._uncovered)[0]
        error = self._uncovered[first]
        nodes, arguments = set(own), set()
        pending = list(own)
        while pending:
            for x in pending.pop().all_input_nodes:
                if x in nodes:
                    continue
                alone = x in facts.live and not facts.has_samples(x) and x.op == "call_function"
                if not alone:
                    arguments.add(x)
                elif x in facts.varying or not facts.is_allowed(x):
                    raise error
                else:
                    nodes.add(x)
                    pending.append(x)
        return Subgraph(
            facts.ordered(nodes), facts.ordered(arguments - facts.parameters),
            facts.ordered(arguments & facts.parameters),
            facts.ordered(node for node in own if self._is_read(node, own)), error,
            _common([path_of(node) for node in own]), facts.layer[facts.run[first]],
            facts.ordered(own))

    def _in_order(self, subgraphs: Sequence[Subgraph], gone: Set[Any]) -> List[Unit]:
        """Return nodes and subgraphs in topological order (Kahn). A subgraph takes the place of its
        last node. Leave out the nodes in ``gone``, and nodes that only subgraphs read."""
        facts = self.facts
        of = {node: s for s in subgraphs for node in s.needs}
        for node in reversed(facts.nodes):
            alone = node in facts.live and not facts.has_samples(node)
            if alone and node.op == "call_function" and node.users and all(
                    user in of or user in gone or is_skipped(user) for user in node.users):
                gone.add(node)
        units = [node for node in facts.nodes if node not in of and node not in gone]
        place = {id(s): facts.index[s.needs[-1]] for s in subgraphs}
        waiting = {id(u): 0 for u in [*units, *subgraphs]}
        readers: Dict[int, List[Any]] = {}
        for unit in [*units, *subgraphs]:
            inputs = (unit.arguments if isinstance(unit, Subgraph) else
                      [] if facts.is_number(unit) else unit.all_input_nodes)
            own = {id(of.get(x, x)): of.get(x, x) for x in inputs if x not in gone}
            for key in own:
                readers.setdefault(key, []).append(unit)
            waiting[id(unit)] = len(own)
        place.update({id(node): facts.index[node] for node in units})
        ready = [(place[id(u)], u) for u in [*units, *subgraphs] if not waiting[id(u)]]
        heapq.heapify(ready)
        found: List[Unit] = []
        while ready:
            _, unit = heapq.heappop(ready)
            found.append(unit)
            for reader in readers.get(id(unit), ()):
                waiting[id(reader)] -= 1
                if not waiting[id(reader)]:
                    heapq.heappush(ready, (place[id(reader)], reader))
        return found
