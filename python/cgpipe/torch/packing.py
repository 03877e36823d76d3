# SPDX-License-Identifier: Apache-2.0
"""Pack the arguments of a region if the region has more arguments than a custom op has inputs.
Packed arguments lie side by side in one value.

    a, b, c, d, e, f   ->   a, b, c, CONCAT(d, e, f)        an op has at most MAX inputs

The op CONCAT copies bits, and the backward of CONCAT copies the gradients back."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import torch
from torch import Tensor

from cgpipe._op import MAX
from cgpipe.torch.graph import Graph
from cgpipe.torch.region import Operand, memory_of

__all__ = ["pack"]


class _Packed(Operand):
    """A tensor that is a part of each row of a value."""

    def __init__(self, operand: Operand, first: int, total: int) -> None:
        super().__init__(operand.layout, operand.dtype)
        self.first, self.total = first, total

    def view(self, address: int, samples: int) -> Tensor:
        rows = memory_of(address, [samples, self.total])
        own = rows[:, self.first:self.first + self.elements]
        return own.view([samples, *self.sizes]).permute(self.order)


def pack(graph: Graph, inputs: Sequence[Tuple[int, Operand]],
         room: int) -> Tuple[List[int], List[Operand], List[int]]:
    """Return the values that the op reads, the operands of all arguments, and for each operand the
    index of its value. There are at most ``room`` values, unless there are too many integer
    arguments, because integers are never packed. ``inputs`` has a value and an operand for each
    argument."""
    operands = [operand for _, operand in inputs]
    if len(inputs) <= room:
        return [number for number, _ in inputs], operands, list(range(len(inputs)))
    floats = [i for i, operand in enumerate(operands) if operand.dtype == torch.float32]
    alone = max(0, room - 1 - (len(inputs) - len(floats)))
    packed = floats[alone:]
    total, first = sum(operands[i].elements for i in packed), 0
    for i in packed:
        operands[i] = _Packed(operands[i], first, total)
        first += operands[i].elements
    values = [number for i, (number, _) in enumerate(inputs) if i not in packed]
    places = iter(range(len(values)))
    slots = [len(values) if i in packed else next(places) for i in range(len(inputs))]
    rows = [graph.reshape(inputs[i][0], [operands[i].elements]) for i in packed]
    return [*values, _joined(graph, rows)], operands, slots


def _joined(graph: Graph, rows: List[int]) -> int:
    """Return one value with the rows of all values side by side."""
    while len(rows) > 1:
        width = sum(graph.shape(number)[0] for number in rows[:MAX])
        rows = [graph.add("concat", rows[:MAX], [width]), *rows[MAX:]]
    return rows[0]
