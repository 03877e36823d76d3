# SPDX-License-Identifier: Apache-2.0
"""The graph during a capture: nodes, parameters, states and hidden inputs, as defined in
docs/reference/graph-files.md."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from torch import Tensor

from cgpipe.torch.layout import BATCH, Axis, Layout, MixesSamples, Unlike, count

__all__ = ["Graph", "Value"]

#: Maximum number of dimensions of a sample.
MAX_RANK = 5


class Value:
    """A tensor of the graph: the number of its value, and its layout."""

    def __init__(self, number: int, layout: Layout) -> None:
        self.number, self.layout = number, layout

    def with_layout(self, layout: Layout) -> "Value":
        """Return another view of the same memory."""
        return Value(self.number, layout)


class Graph:
    """Nodes in order of execution, grouped into layers. Shapes are for one sample."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: List[Dict[str, Any]] = []
        self.inputs: List[Dict[str, Any]] = []
        self.layers: List[str] = []
        self.parameters: List[Dict[str, Any]] = []
        self.nodes: List[Dict[str, Any]] = []
        self.losses: List[Dict[str, Any]] = []
        self.outputs: List[int] = []
        self.states: List[str] = []
        #: Values through which parameters get a gradient although no node names these parameters:
        #: results of regions.
        self.trained: Set[int] = set()
        self._parameters: Dict[str, int] = {}

    def json(self) -> Dict[str, Any]:
        """Return the graph in the form of a graph file."""
        return {"format": "cgpipe-graph", "version": 2, "name": self.name, "values": self.values,
                "inputs": self.inputs, "layers": self.layers, "parameters": self.parameters,
                "nodes": self.nodes, "losses": self.losses, "outputs": self.outputs}

    def shape(self, number: int) -> List[int]:
        """Return a value's shape."""
        return list(self.values[number]["shape"])

    # --- layers ---

    def layer(self, name: str) -> None:
        """Begin a layer. If the name was already used by an earlier layer, the new layer's name
        gets a number."""
        if self.layers and (self.layers[-1] == name or self.layers[-1].startswith(name + "#")):
            return
        again = sum(layer == name or layer.startswith(name + "#") for layer in self.layers)
        self.layers.append(f"{name}#{again + 1}" if again else name)

    # --- values ---

    def _value(self, dtype: str, shape: Sequence[int]) -> int:
        self.values.append({"dtype": dtype, "shape": list(shape) or [1]})
        return len(self.values) - 1

    def input(self, name: str, dtype: str, layout: Layout) -> Value:
        """Declare an input, with its axes in memory order."""
        sizes = [axis.size for axis in layout.order]
        number = self._value(dtype, sizes if len(sizes) <= MAX_RANK else [count(layout.order)])
        self.inputs.append({"name": name, "value": number})
        return Value(number, layout)

    def add(self, op: str, inputs: Sequence[int], shape: Sequence[int],
            attributes: Optional[Dict[str, Any]] = None, parameters: Sequence[int] = (),
            states: Sequence[str] = (), dtype: str = "f32") -> int:
        """Add a node; return its value."""
        if not self.layers:
            self.layer("input")
        number = self._value(dtype, shape)
        node: Dict[str, Any] = {"op": op, "layer": len(self.layers) - 1, "inputs": list(inputs),
                                "output": number}
        if parameters:
            node["parameters"] = list(parameters)
        if states:
            node["states"] = list(states)
            self.states.extend(states)
        if attributes is not None:
            node["attributes"] = attributes
        self.nodes.append(node)
        return number

    def has_gradient(self, number: int) -> bool:
        """Return whether at least one parameter gets a gradient through a value."""
        found = {number}
        for node in reversed(self.nodes):
            if node["output"] not in found or node.get("op") in ("detach", "argmax"):
                continue
            if node.get("parameters"):
                return True
            found.update(node["inputs"])
        return not self.trained.isdisjoint(found)

    def loss(self, op: str, inputs: Sequence[int], attributes: Dict[str, Any],
             weight: float) -> None:
        """Add a loss."""
        entry = {"op": op, "inputs": list(inputs), "weight": weight}
        self.losses.append(dict(entry, attributes=attributes) if attributes else entry)

    def parameter(self, name: str, shape: Sequence[int], decays: bool) -> int:
        """Return the number of a parameter, which is declared at its first use.

        Raises:
            Unlike: Another op uses the parameter in another shape.
        """
        if name in self._parameters:
            number = self._parameters[name]
            if self.parameters[number]["shape"] != list(shape):
                raise Unlike(f"parameter {name} in two shapes")
            return number
        self._parameters[name] = len(self.parameters)
        self.parameters.append({"name": name, "shape": list(shape), "init": "zero", "scale": 0.0,
                                "decays": decays})
        return len(self.parameters) - 1

    def prune(self) -> List[Dict[str, Any]]:
        """Remove the nodes that no output or loss needs, with their parameters and states. Return
        these nodes. (The engine would remove the nodes too, but it would then number the parameters
        differently.)"""
        needed = {*self.outputs, *(x for loss in self.losses for x in loss["inputs"])}
        kept: List[Dict[str, Any]] = []
        removed: List[Dict[str, Any]] = []
        for node in reversed(self.nodes):
            if node["output"] in needed:
                needed.update(node["inputs"])
                kept.insert(0, node)
            else:
                removed.insert(0, node)
        used = {p for node in kept for p in node.get("parameters", ())}
        number = {p: i for i, p in enumerate(sorted(used))}
        self.parameters = [self.parameters[p] for p in number]
        self.nodes, self.states = kept, []
        for node in kept:
            if "parameters" in node:
                node["parameters"] = [number[p] for p in node["parameters"]]
            self.states += node.get("states", [])
        return removed

    # --- memory order ---

    def ordered(self, value: Value, axes: Sequence[Axis]) -> int:
        """Return the number of a value whose axes are in this memory order. The dimensions of the
        value do not matter."""
        wanted = list(axes)
        if BATCH in wanted:
            raise MixesSamples
        if any(axis.repeated for axis in wanted):
            raise Unlike("repeated values (expand) where they must be in memory")
        return (value.number if wanted == value.layout.order
                else self._reorder(value.number, value.layout.order, wanted))

    def arrange(self, value: Value, groups: Sequence[Sequence[Axis]]) -> int:
        """Return the number of a value whose axes are in this memory order, and which has a
        dimension for each group of axes."""
        number = self.ordered(value, [axis for group in groups for axis in group])
        return self.reshape(number, [count(group) for group in groups])

    def reshape(self, number: int, shape: Sequence[int]) -> int:
        """Return a value with other dimensions. The elements stay where they are in memory."""
        shape = list(shape) or [1]
        if self.shape(number) == shape:
            return number
        if len(shape) > MAX_RANK:
            raise Unlike(f"more than {MAX_RANK} dimensions")
        return self.add("reshape", [number], shape,
                        {"rank": len(shape), "dims": (shape + [0] * 6)[:6]})

    def _reorder(self, number: int, order: Sequence[Axis], wanted: Sequence[Axis]) -> int:
        """Transpose dimensions until the axes are in the wanted order."""
        if set(map(id, order)) != set(map(id, wanted)):
            raise Unlike("an order of other axes")
        blocks = _blocks(order, wanted)
        target = [block for axis in wanted for block in blocks if block[0] is axis]
        if len(blocks) > MAX_RANK:
            return self._moved(number, blocks, target)
        shape = [count(block) for block in blocks]
        number = self.reshape(number, shape)
        for i, block in enumerate(target):
            j = blocks.index(block)
            if i == j:
                continue
            blocks[i], blocks[j] = blocks[j], blocks[i]
            shape[i], shape[j] = shape[j], shape[i]
            number = self.add("transpose", [number], shape, {"dim": [i, j]})
        return number

    def _moved(self, number: int, blocks: List[Tuple[Axis, ...]],
               target: Sequence[Tuple[Axis, ...]]) -> int:
        """Move the blocks of axes to their places, one block at a time. This is needed if there are
        more blocks than dimensions of a transpose."""
        for i, block in enumerate(target):
            j = blocks.index(block)
            if i == j:
                continue
            sizes = [count(axis for b in part for axis in b)
                     for part in (blocks[:i], blocks[i:j], [block], blocks[j + 1:])]
            number = self.reshape(number, sizes)
            number = self.add("transpose", [number], [sizes[0], sizes[2], sizes[1], sizes[3]],
                              {"dim": [1, 2]})
            blocks.insert(i, blocks.pop(j))
        return number


def _blocks(order: Sequence[Axis], wanted: Sequence[Axis]) -> List[Tuple[Axis, ...]]:
    """Return the longest runs of axes that are adjacent in both orders."""
    place = {id(axis): i for i, axis in enumerate(wanted)}
    blocks: List[List[Axis]] = []
    for axis in order:
        if blocks and place[id(axis)] == place[id(blocks[-1][-1])] + 1:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    return [tuple(block) for block in blocks]


def to_memory(tensor: Tensor, layout: Layout) -> Tensor:
    """Return a PyTorch tensor in the engine's memory order, [N, *axes in that order]."""
    logical = layout.logical()
    split = tensor.reshape([tensor.numel() // max(1, count(logical)),
                            *(axis.size for axis in logical)])
    place = {id(axis): i for i, axis in enumerate(logical)}
    return split.permute([0, *(place[id(axis)] + 1 for axis in layout.order)]).contiguous()


def from_memory(tensor: Tensor, layout: Layout) -> Tensor:
    """Convert a tensor [N, ...] from the engine's memory order to the dimensions of the layout."""
    n = tensor.shape[0]
    split = tensor.view([n, *(axis.size for axis in layout.order)])
    place = {id(axis): i for i, axis in enumerate(layout.order)}
    logical = layout.logical()
    ordered = split.permute([0, *(place[id(axis)] + 1 for axis in logical)])
    return ordered.reshape(layout.shape(n))
