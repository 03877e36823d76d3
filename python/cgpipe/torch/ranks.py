# SPDX-License-Identifier: Apache-2.0
"""The weights of a captured module whose pipeline has several ranks.

Each rank only has the parameters of its own stages, so the module's tensors cannot be views of all
parameters. The pipeline copies the module's values when it is created, and the module gets the
trained values when the pipeline is closed. Until then, the module's ``state_dict()`` is refused."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, Tuple

import torch
from torch import Tensor

from cgpipe.errors import CgpipeError, StateError

__all__ = ["allowing_state_dict", "give", "take"]


def _entries(captured: Any) -> Iterator[Tuple[str, int, Any]]:
    for what, entries in (("parameter", captured.parameters), ("state", captured.states)):
        for i, entry in enumerate(entries):
            yield what, i, entry


def _refuse(module: Any, *_: Any) -> None:
    raise StateError("state_dict: the module has the weights of its ranks when the pipeline is "
                     "closed (close it first, or call Pipeline.state_dict() on all ranks)")


@contextlib.contextmanager
def allowing_state_dict(captured: Any, pipeline: Any) -> Iterator[None]:
    """Let a capture read the module's ``state_dict()``. This is safe because the values do not
    matter to a capture."""
    if pipeline.plan.ranks == 1:
        yield
        return
    for hook in pipeline.hooks:
        hook.remove()
    try:
        yield
    finally:
        pipeline.hooks = [captured.module.register_state_dict_pre_hook(_refuse)]


def give(captured: Any, pipeline: Any, tensors: Dict[str, Tensor]) -> None:
    """Copy the module's values to a new pipeline. Collective: all ranks must call this."""
    for what, i, entry in _entries(captured):
        memory = torch.from_numpy(getattr(pipeline, what)(i))
        entry.to_torch(memory).copy_(tensors[entry.name].detach())
        getattr(pipeline, f"set_{what}")(i, memory)
    pipeline.hooks = [captured.module.register_state_dict_pre_hook(_refuse)]


def take(captured: Any, pipeline: Any, tensors: Dict[str, Tensor]) -> None:
    """Copy the values of a pipeline to the module, before the pipeline is closed. Collective: all
    ranks must call this. After a failure, the module keeps its old values, and its state_dict()
    stays refused."""
    try:
        found = [(entry, torch.from_numpy(getattr(pipeline, what)(i)))
                 for what, i, entry in _entries(captured)]
    except CgpipeError:
        return
    with torch.no_grad():
        for entry, memory in found:
            tensors[entry.name].copy_(entry.to_torch(memory))
    for hook in pipeline.hooks:
        hook.remove()
