# SPDX-License-Identifier: Apache-2.0
"""Checks of a module and its example inputs before a trace begins."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from cgpipe.torch.finding import Finding

__all__ = ["check_module", "of_inputs", "of_module"]


def check_module(module: Any) -> None:
    """Raise unless a module is an nn.Module."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: an nn.Module is expected, got {_kind(module)}")


def _kind(value: Any) -> str:
    return type(value).__name__ if not isinstance(value, type) else f"the class {value.__name__}"


def _short(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


# --- parameters and buffers ---


def of_module(module: nn.Module) -> List[Finding]:
    """Return the findings about parameters and buffers that the engine does not support."""
    if isinstance(module, torch.jit.ScriptModule):
        return [Finding("", text="a module with Python code is expected, got a scripted one (give "
                                 "the module from which torch.jit made it)")]
    found: List[Finding] = []
    for path, child in module.named_modules():
        if getattr(child, "is_pipeline", False):
            found.append(Finding(path, text="a pipeline inside another one is not covered (give "
                                            "its layers: nn.Sequential(*pipeline))"))
        for key, p in child._parameters.items():
            text = None if p is None else _of_parameter(p)
            if text is not None:
                found.append(Finding(f"{path}.{key}".lstrip("."), text=text))
        for key, b in child._buffers.items():
            text = None if b is None else _of_place(b, "a buffer")
            if text is not None:
                found.append(Finding(f"{path}.{key}".lstrip("."), text=text))
    return found


def _of_parameter(p: Tensor) -> Optional[str]:
    if is_lazy(p):
        return ("a parameter with a shape is expected, got an uninitialized one (call the module "
                "with an example once)")
    if p.dtype != torch.float32:
        return f"float32 is expected, got {_short(p.dtype)} (module.float() casts all)"
    return _of_place(p, "a parameter")


def _of_place(tensor: Tensor, what: str) -> Optional[str]:
    """Return the reason why the memory of a tensor cannot be used."""
    if is_lazy(tensor):
        return (f"{what} with a shape is expected, got an uninitialized one (call the module with "
                "an example once)")
    if tensor.device.type == "meta":
        return (f"{what} with values on the CPU is expected, got one on meta (to_empty("
                "device=\"cpu\"), and load its values)")
    if tensor.device.type != "cpu":
        return f"{what} on the CPU is expected, got one on {tensor.device} (module.cpu())"
    if tensor.layout != torch.strided:
        return f"{what} that is dense is expected, got {_short(tensor.layout)} (to_dense())"
    return None


# --- inputs ---


def of_inputs(inputs: Sequence[Any], kwargs: Optional[Dict[str, Any]]) -> List[Finding]:
    """Return the findings about example inputs that the engine does not support."""
    found: List[Finding] = []
    tensors: List[Tuple[str, Tensor]] = []
    for name, value in [*((f"input {i}", x) for i, x in enumerate(inputs)),
                        *((f"input {key}", x) for key, x in (kwargs or {}).items())]:
        for i, leaf in enumerate(torch.utils._pytree.tree_leaves(value)):
            if isinstance(leaf, Tensor):
                tensors.append((name if leaf is value else f"{name}, element {i}", leaf))
    for name, x in tensors:
        text = _of_input(x) or _of_samples(x, *tensors[0])
        if text is not None:
            found.append(Finding(name, text=text))
    if not tensors:
        given = ", ".join(dict.fromkeys(_kind(x) for x in (*inputs, *(kwargs or {}).values())))
        found.append(Finding("inputs", text="at least one tensor [N, ...] is expected, got "
                                            f"{given or 'none'}"))
    return found


def _of_samples(x: Tensor, first_name: str, first: Tensor) -> Optional[str]:
    if first.dim() == 0 or x.shape[0] == first.shape[0]:
        return None
    return (f"{first.shape[0]} samples are expected, as in {first_name}, got {x.shape[0]} (expand "
            "what is the same for all samples, or make it a buffer)")


def _of_input(x: Tensor) -> Optional[str]:
    place = _of_place(x, "a tensor")
    if place is not None:
        return place.replace("module.cpu()", "cpu()").replace(
            " (to_empty(device=\"cpu\"), and load its values)", "")
    if x.dim() == 0:
        return "a tensor [N, ...] is expected, got a scalar (give a number instead)"
    if x.is_complex():
        return (f"float32 or integers are expected, got {_short(x.dtype)} (torch.view_as_real() "
                "has both parts)")
    if x.is_floating_point() and x.dtype != torch.float32:
        return f"float32 is expected, got {_short(x.dtype)} (float())"
    return None
