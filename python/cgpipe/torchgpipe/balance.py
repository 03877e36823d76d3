# SPDX-License-Identifier: Apache-2.0
"""Balances for GPipe: the number of layers of each partition, from measured times or computed
bytes.

    balance = balance_by_time(2, model, torch.empty(128, 3, 224, 224))
    model = GPipe(model, balance, chunks=8)

The functions have the names of torchgpipe's functions. The partition is optimal for the costs: its
most expensive part is as cheap as possible."""

from __future__ import annotations

import copy
import ctypes
import re
import time
import weakref
from typing import Any, List, Optional, Sequence, Tuple, Union

import torch
from torch import Tensor, nn

from cgpipe import _c
from cgpipe.errors import CgpipeError
from cgpipe.model import measure_layers
from cgpipe.torch import CaptureError, capture
from cgpipe.torch.engine import Options, destroy, device_name, layer_stages, make_plan, read_model
from cgpipe.torch.watch import buffers_kept
from cgpipe.torchgpipe.gpipe import Device, TensorOrTensors, Whole, check
from cgpipe.torchgpipe.skip import fresh_skips

__all__ = ["balance_by_size", "balance_by_time"]


def _solve(costs: Sequence[float], partitions: int) -> List[int]:
    """Cut a list of costs into partitions so that the largest sum is minimal. If there are several
    optima, take the one with the leftmost cuts."""
    if not 1 <= partitions <= len(costs):
        raise ValueError(f"partitions: 1 to the number of layers, {len(costs)}, are possible, got "
                         f"{partitions}")
    balance = (ctypes.c_int * partitions)()
    _c.check(_c.lib.cgp_balance_solve((ctypes.c_double * len(costs))(*costs), len(costs),
                                      partitions, balance))
    return list(balance)


def _whole(module: nn.Sequential, sample: TensorOrTensors) -> Whole:
    """Return the module with each of its children as a partition, for training."""
    return Whole(nn.ModuleList([nn.Sequential(layer) for layer in module]),
                 isinstance(sample, tuple))


def _prefixes(module: nn.Sequential) -> List[str]:
    return [f"partitions.{j}" for j in range(len(module))]


def _name(device: Device) -> str:
    return device_name(str(torch.device(device)))


def _tensors(sample: TensorOrTensors) -> Tuple[Tensor, ...]:
    check(sample)
    return sample if isinstance(sample, tuple) else (sample,)


def _captured(whole: nn.Module, inputs: Tuple[Tensor, ...]) -> Any:
    """Capture a result of _whole(). Errors name layers as the module does."""
    try:
        return capture(whole, inputs, name="balance")
    except CaptureError as error:
        error.rename(lambda text: re.sub(r"\bpartitions\.(\d+)\.0\b", r"\1", text))
        raise


class _Planned:
    """A model without a pipeline and, if options are given, the model's plan. Model and plan are
    freed with this object."""

    def __init__(self, captured: Any, options: Optional[Options] = None, samples: int = 1) -> None:
        self.model, self.plan = ctypes.c_void_p(), ctypes.c_void_p()
        weakref.finalize(self, destroy, ctypes.c_void_p(), self.plan, self.model, captured.regions)
        read_model(self.model, captured)
        if options is not None:
            make_plan(self.plan, self.model, options, samples)


def _layer_seconds(module: nn.Module, inputs: Tuple[Tensor, ...], prefixes: Sequence[str],
                   device: str) -> List[float]:
    """For each prefix, return the measured seconds that forward and backward of its layers take
    with a micro-batch of these inputs.

    All times are 0 if the module has nothing to compute, or if it cannot be captured and the device
    is a CPU.
    """
    try:
        captured = _captured(module, inputs)
    except (CgpipeError, NotImplementedError):
        if device == "cpu":
            return [0.0] * len(prefixes)
        raise
    if all(node.get("op") == "reshape" for node in captured.graph["nodes"]):
        return [0.0] * len(prefixes)
    planned = _Planned(captured)
    with buffers_kept(module):
        costs = captured.regions.call(lambda: measure_layers(
            planned.model, inputs[0].shape[0], torch.get_num_threads(), device))
    seconds = [0.0] * len(prefixes)
    for stage, cost in zip(layer_stages(planned.model, prefixes), costs):
        seconds[stage] += cost.forward_seconds + cost.input_seconds + cost.weight_seconds
    return seconds


def _layer_bytes(module: nn.Module, inputs: Tuple[Tensor, ...], prefixes: Sequence[str],
                 chunks: int, device: str) -> Tuple[List[int], List[int]]:
    """Return two lists with an entry for each prefix. The first has the bytes of a micro-batch that
    the backward of the prefix's layers reads. The second has the bytes of the layers'
    parameters."""
    planned = _Planned(_captured(module, inputs),
                       Options(prefixes, [device] * len(prefixes), chunks), inputs[0].shape[0])
    saved, parameters = [0] * len(prefixes), [0] * len(prefixes)
    for i, stage in enumerate(sorted(set(layer_stages(planned.model, prefixes)))):
        info = _c.lib.cgp_plan_stage_at(planned.plan, i).contents
        saved[stage] = info.saved_slot_bytes
        parameters[stage] = _c.lib.cgp_plan_device_at(
            planned.plan, info.device).contents.parameter_bytes
    return saved, parameters


class _Training:
    """Put a module into training mode, and restore the modes of its parts afterwards."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __enter__(self) -> None:
        self.modes = [(part, part.training) for part in self.module.modules()]
        self.module.train()

    def __exit__(self, *unused: Any) -> None:
        for part, mode in self.modes:
            part.training = mode


def _detached(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_detached(element) for element in value)
    return value.detach().requires_grad_(value.requires_grad)


def _measure_once(layers: Sequence[nn.Module], value: Any) -> List[float]:
    """Run the layers in PyTorch, one after the other. Return the seconds that forward and backward
    of each layer take."""
    seconds = []
    for layer in layers:
        value = _detached(value)
        start = time.perf_counter()
        value = layer(value)
        check(value)
        outputs = [y for y in (value if isinstance(value, tuple) else (value,)) if y.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(y) for y in outputs])
        seconds.append(time.perf_counter() - start)
    return seconds


def _measure_in_torch(module: nn.Sequential, sample: TensorOrTensors,
                      timeout: float) -> List[float]:
    """Return the minimum seconds of each layer over as many passes as fit into `timeout`, after a
    warm-up pass."""
    layers = [copy.deepcopy(layer).train() for layer in module]
    end = time.perf_counter() + timeout
    with torch.enable_grad():
        with fresh_skips():
            _measure_once(layers, sample)
        least = [float("inf")] * len(layers)
        while True:
            with fresh_skips():
                least = [min(pair) for pair in zip(least, _measure_once(layers, sample))]
            if time.perf_counter() >= end:
                return least


def balance_by_time(partitions: int, module: nn.Sequential, sample: TensorOrTensors, *,
                    timeout: float = 1.0, device: Device = "cpu") -> List[int]:
    """Balance by the time of each layer's forward and backward.

    The engine's kernels are measured in training steps (cgp_profile_steps). If the device is a CPU
    and the module cannot be captured, or if the measured time is 0, PyTorch runs the layers
    instead, and their times are measured for ``timeout`` seconds.

    Args:
        partitions: number of partitions.
        module: sequential module. Its mode and parameters do not change.
        sample: inputs of a micro-batch, [N, ...] each.
        timeout: duration of the measurement in PyTorch, in seconds.
        device: device on which the engine's kernels are measured.

    Raises:
        ValueError: a parameter already has a gradient, or there are more partitions than layers.
        CgpipeError: the device does not exist, or it is not a CPU and the module cannot be
            captured.
    """
    if any(parameter.grad is not None for parameter in module.parameters()):
        raise ValueError("some parameter already has gradient")
    with _Training(module):
        costs = _layer_seconds(_whole(module, sample), _tensors(sample), _prefixes(module),
                               _name(device))
    if sum(costs) == 0:
        costs = _measure_in_torch(module, sample, timeout)
    return _solve(costs, partitions)


def balance_by_size(partitions: int, module: nn.Sequential, input: TensorOrTensors, *,
                    chunks: int = 1, param_scale: float = 2.0, device: Device = "cpu") -> List[int]:
    """Balance by bytes: the values of a micro-batch that backward reads, plus ``param_scale`` x the
    parameters.

    Nothing runs: the bytes of each layer are read from the engine's plan.

    Args:
        partitions: number of partitions.
        module: sequential module.
        input: inputs of a mini-batch, [N, ...] each.
        chunks: number of micro-batches.
        param_scale: bytes per byte of a parameter, for the parameter, its gradient and its
            optimizer states: 2 for SGD, 3 with momentum, 4 for Adam.
        device: device of the plan.

    Raises:
        ValueError: there are more partitions than layers.
        CgpipeError: the module cannot be captured.
    """
    with _Training(module):
        saved, parameters = _layer_bytes(_whole(module, input), _tensors(input), _prefixes(module),
                                         chunks, _name(device))
    return _solve([float(s) + param_scale * float(p) for s, p in zip(saved, parameters)],
                  partitions)
