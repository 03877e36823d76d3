# SPDX-License-Identifier: Apache-2.0
"""The pieces of a captured module. In a proof (proof.py), the engine runs each piece separately.

    node --> node --|cut|--> node --|cut|--> node --> output
    piece 0              piece 1        piece 2

A value at a cut is an output of the piece that makes it, and an input of the pieces that read it.
So a piece gets PyTorch's own values and gradients, and rounding does not grow from piece to piece.
Two nodes are in the same piece if they share a running statistic or a value that is not at a cut.
Pieces run one after the other, so they need only the memory of the largest piece."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Sequence, Set

import torch
from torch import Tensor

from cgpipe.torch.captured import Captured
from cgpipe.torch.engine import Engine, Options
from cgpipe.torch.places import Place
from cgpipe.worker import Worker

__all__ = ["Piece", "pieces_of"]

Node = Dict[str, Any]
#: Small pieces are joined up to this number of elements, because making an engine takes time.
JOINED = 1 << 22


class Piece:
    """A part of a graph. It ends with outputs, or with the losses."""

    def __init__(self, captured: Captured, nodes: Sequence[Node], outputs: Sequence[int],
                 losses: Sequence[Node], wants: Set[int]) -> None:
        graph = captured.graph
        self.outputs, self.nodes, self.losses = list(outputs), list(nodes), list(losses)
        made = {node["output"] for node in nodes}
        self.origins: List[Place] = list(dict.fromkeys(
            captured.origins[x] for x in sorted(made) if x in captured.origins))
        names = {node.get("custom") for node in nodes}
        self.regions = [region for region in captured.regions.all
                        if region.ops[-1].name.decode() in names]
        read = {x for node in [*nodes, *losses] for x in node["inputs"]}
        cut = {cut.number for cut in captured.cuts.values()}
        #: The values that the piece reads, by their numbers in the whole graph.
        self.inputs = sorted(x for x in read if x not in made or x in cut)
        self.wants = [x in wants for x in self.inputs]
        used = sorted({p for node in nodes for p in node.get("parameters", ())})
        states = {name for node in nodes for name in node.get("states", ())}
        self.captured = replace(
            captured, graph=_graph(graph, self, used),
            parameters=[captured.parameters[p] for p in used],
            states=[state for state in captured.states if state.name in states],
            _with_gradient=None)

    def engine(self, worker: Worker, samples: int) -> Engine:
        """Return an engine for this number of samples."""
        found: Engine = worker.call(Engine, worker, self.captured,
                                    Options(external_loss=not self.losses), samples, self.wants)
        return found

    def shape(self, output: int) -> List[int]:
        """Return the shape of an output, by its index."""
        graph = self.captured.graph
        shape: List[int] = graph["values"][graph["outputs"][output]]["shape"]
        return shape

    def new_gradients(self, values: Sequence[Tensor]) -> List[Any]:
        """Return new tensors for the gradients of the inputs, with None for a gradient that is not
        wanted."""
        return [torch.empty_like(x) if want and x.is_floating_point() else None
                for x, want in zip(values, self.wants)]


def _graph(graph: Dict[str, Any], piece: Piece, used: Sequence[int]) -> Dict[str, Any]:
    """Return the graph of a piece. Its values have their own numbers, from 0."""
    names = {entry["value"]: entry["name"] for entry in graph["inputs"]}
    values = [graph["values"][x] for x in piece.inputs]
    given = {x: i for i, x in enumerate(piece.inputs)}
    made: Dict[int, int] = {}
    parameters = {p: i for i, p in enumerate(used)}
    layers = sorted({node["layer"] for node in piece.nodes})
    nodes = []

    def read(node: Node) -> List[int]:
        return [given[x] if x in given else made[x] for x in node["inputs"]]
    for node in piece.nodes:
        new = dict(node, inputs=read(node), output=len(values), layer=layers.index(node["layer"]))
        made[node["output"]] = len(values)
        values.append(graph["values"][node["output"]])
        if "parameters" in node:
            new["parameters"] = [parameters[p] for p in node["parameters"]]
        nodes.append(new)
    return dict(graph, values=values, nodes=nodes,
                inputs=[{"name": names.get(x, f"cut {x}"), "value": i} for x, i in given.items()],
                layers=[graph["layers"][i] for i in layers],
                parameters=[graph["parameters"][p] for p in used],
                losses=[dict(loss, inputs=read(loss)) for loss in piece.losses],
                outputs=[made[x] for x in piece.outputs])


# --- cutting ---


def pieces_of(captured: Captured, wants: Set[int], join: bool = True) -> List[Piece]:
    """Return the pieces of a captured module between its cuts. ``wants`` has the values that get a
    gradient. If ``join``, small pieces are joined, so that one engine runs several pieces. A node
    on which both a cut and a loss depend is in two pieces."""
    graph = captured.graph
    cut = {cut.number for cut in captured.cuts.values()}
    ends = cut if graph["losses"] else cut | set(graph["outputs"])
    found: List[Piece] = []
    groups = _groups(graph, cut)
    for nodes in _joined(graph, groups) if join else groups:
        outputs = [node["output"] for node in nodes if node["output"] in ends]
        before = _before(nodes, set(outputs), cut)
        if before:
            found.append(Piece(captured, before, outputs, [], wants))
        losses = _losses_of(graph, nodes)
        if losses:
            read = {x for loss in losses for x in loss["inputs"]}
            found.append(Piece(captured, _before(nodes, read, cut), [], losses, wants))
    return found


def _losses_of(graph: Dict[str, Any], nodes: Sequence[Node]) -> List[Node]:
    made = {node["output"] for node in nodes}
    return [loss for loss in graph["losses"] if made.intersection(loss["inputs"])]


def _before(nodes: Sequence[Node], ends: Set[int], cut: Set[int]) -> List[Node]:
    """Return the nodes on which these values depend, back to the cuts."""
    needed, found = set(ends), []
    for node in reversed(nodes):
        if node["output"] in needed:
            needed.update(x for x in node["inputs"] if x not in cut)
            found.append(node)
    return found[::-1]


def _groups(graph: Dict[str, Any], cut: Set[int]) -> List[List[Node]]:
    """Return the nodes of each piece, in order."""
    nodes, whole = graph["nodes"], {}  # type: Any, Dict[Any, int]
    above = list(range(len(nodes)))

    def root(i: int) -> int:
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    def join(i: int, key: Any) -> None:
        above[root(i)] = root(whole.setdefault(key, i))
    last = {x for loss in graph["losses"] for x in loss["inputs"]}
    for i, node in enumerate(nodes):
        for x in node["inputs"]:
            if x in whole and x not in cut:
                join(i, x)
        for name in node.get("states", ()):
            join(i, name)
        whole[node["output"]] = i
        if node["output"] in last:
            join(i, "losses")
    groups: Dict[int, List[Node]] = {}
    for i, node in enumerate(nodes):
        groups.setdefault(root(i), []).append(node)
    return list(groups.values())


def _joined(graph: Dict[str, Any], groups: Sequence[List[Node]]) -> Iterator[List[Node]]:
    """Yield the groups of nodes, and join small groups."""
    taken: List[Node] = []
    for group in groups:
        if taken and _elements(graph, [*taken, *group]) > JOINED:
            yield sorted(taken, key=lambda node: int(node["output"]))
            taken = []
        taken = [*taken, *group]
    if taken:
        yield sorted(taken, key=lambda node: int(node["output"]))


def _elements(graph: Dict[str, Any], nodes: Sequence[Node]) -> int:
    """Return the number of elements in the parameters plus the number in three samples of the
    values."""
    used = {p for node in nodes for p in node.get("parameters", ())}
    return int(sum(math.prod(graph["parameters"][p]["shape"]) for p in used)
               + 3 * sum(math.prod(graph["values"][node["output"]]["shape"]) for node in nodes))
