# SPDX-License-Identifier: Apache-2.0
"""Weights of a captured module's pipeline, under the names and in the layout of the module's own
``state_dict()``."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Tuple

import numpy as np
import torch
from torch import Tensor, nn

from cgpipe import _c
from cgpipe.errors import ArgumentError

__all__ = ["load", "state_dict"]


def _tensors(module: nn.Module) -> Iterator[Tuple[str, Tensor]]:
    """Yield the names and tensors of the module's state_dict(), in the same order. Tied tensors
    appear under all their names."""
    for path, part in module.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield prefix + name, parameter
        for name, buffer in part._buffers.items():
            if buffer is not None and name not in part._non_persistent_buffers_set:
                yield prefix + name, buffer


def _engine(captured: Any) -> Dict[Any, Tuple[str, int, Any]]:
    """Return a dictionary whose keys are the tensors of the module that the engine has. A value is
    the tensor's kind, number and conversion."""
    module = captured.module
    named = {**dict(module.named_parameters(remove_duplicate=False)),
             **dict(module.named_buffers(remove_duplicate=False))}
    return {named[entry.name]: (what, i, entry)
            for what, entries in (("parameter", captured.parameters), ("state", captured.states))
            for i, entry in enumerate(entries)}


def state_dict(captured: Any, pipeline: Any) -> Dict[str, Tensor]:
    """Return copies of all of the module's tensors. Collective: all ranks must call this."""
    engine = _engine(captured)
    found = {tensor: entry.to_torch(torch.from_numpy(getattr(pipeline, what)(i)))
             .to(tensor.dtype).contiguous() for tensor, (what, i, entry) in engine.items()}
    return {name: found[tensor] if tensor in found else tensor.detach().clone()
            for name, tensor in _tensors(captured.module)}


def load(captured: Any, pipeline: Any, values: Mapping[str, Any]) -> None:
    """Set the tensors of the module and of the engine.

    Raises:
        ArgumentError: A name is missing or unknown, or a value does not fit; nothing was changed.
    """
    tensors = dict(_tensors(captured.module))
    _check_names(set(tensors), set(values))
    engine = _engine(captured)
    memories: List[Tuple[str, int, Tensor]] = []
    others: List[Tuple[Tensor, Tensor]] = []
    for name, tensor in tensors.items():
        value = _fitting(name, values[name], tensor)
        if tensor not in engine:
            others.append((tensor, value))
            continue
        what, i, entry = engine[tensor]
        kind = pipeline._parameters if what == "parameter" else pipeline._states
        memory = torch.empty(kind[i].shape, dtype=getattr(torch, kind[i].dtype))
        entry.to_torch(memory).copy_(value)
        memories.append((what, i, memory))
    lib, handle = _c.lib, pipeline._handle
    write = {"parameter": lib.cgp_pipeline_set_parameter, "state": lib.cgp_pipeline_set_state}

    def run() -> None:
        for what, i, memory in memories:
            _c.check(write[what](handle, i, memory.data_ptr()))

    pipeline._call(run)
    with torch.no_grad():
        for tensor, value in others:
            tensor.copy_(value)
    pipeline._take_counts()


def _check_names(known: Any, given: Any) -> None:
    for what, names in (("missing", known - given), ("unknown", given - known)):
        if names:
            raise ArgumentError(f"{min(names, key=str)}: {what}"
                                f"{f' ({len(names)} names are)' if len(names) > 1 else ''}")


def _fitting(name: str, value: Any, tensor: Tensor) -> Tensor:
    if not isinstance(value, (Tensor, np.ndarray)):
        raise ArgumentError(f"{name}: a tensor is expected, got {type(value).__name__}")
    found = torch.as_tensor(value).detach()
    if found.shape != tensor.shape:
        raise ArgumentError(f"{name}: shape {list(tensor.shape)} is expected, got "
                            f"{list(found.shape)}")
    return found
