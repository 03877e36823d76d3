# SPDX-License-Identifier: Apache-2.0
"""Where each op of a captured module runs."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch

from cgpipe.torch.finding import line_of
from cgpipe.torch.watch import name_of, path_of

__all__ = ["BEFORE", "ENGINE", "ONCE", "TORCH", "Place", "is_added", "place_of"]

#: Where an op runs: in the engine, by PyTorch inside the pipeline, by PyTorch before each step, or
#: once, during the capture.
ENGINE, TORCH, BEFORE, ONCE = "engine", "PyTorch", "before each step", "once"


class Place(NamedTuple):
    """An op and where it runs."""

    #: Path of the module; "": the module itself.
    path: str
    #: The op's name; for a module that PyTorch runs whole, its class.
    op: str
    #: "file:line" of the call; "": unknown.
    line: str
    #: ENGINE, TORCH, BEFORE or ONCE.
    where: str
    #: Why PyTorch runs the op inside the pipeline; "": PyTorch does not run it there.
    reason: str = ""


def place_of(node: Any, where: str, reason: str = "", op: str = "") -> Place:
    """Return the entry of a node. If the node is the last of several nodes that together compute an
    op, ``op`` is the name of that op."""
    return Place(path_of(node), op or name_of(node), line_of(node), where, reason)


def is_added(node: Any) -> bool:
    """Return whether a node is a copy that a trace makes of a result of an opaque module."""
    item = node.args[0] if name_of(node) == "clone" else None
    return (isinstance(item, torch.fx.Node) and item.target is operator.getitem
            and item.args[0].target is torch.ops.cgpipe.region.default)
