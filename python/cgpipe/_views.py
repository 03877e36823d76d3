# SPDX-License-Identifier: Apache-2.0
"""Views of a pipeline's memory, and the streams of its GPUs."""

from __future__ import annotations

import ctypes
import math
from typing import Any, List, Optional

from cgpipe import _c, dlpack
from cgpipe.errors import StateError

__all__ = ["GPU", "gpu_of", "streams", "view"]

#: Format string of the name that PyTorch gives a GPU.
GPU = "cuda:{}"

_KINDS = {"parameter": "CGP_TENSOR_PARAMETER", "gradient": "CGP_TENSOR_GRADIENT",
          "state": "CGP_TENSOR_STATE"}
_TYPES = (("float32", ctypes.c_float), ("int32", ctypes.c_int32))


def streams(pipeline: Any) -> List[int]:
    """Return the handles of the streams on which the pipeline's GPUs copy tensors. Call it on the
    pipeline's thread."""
    found = [_c.lib.cgp_pipeline_stream(pipeline._handle, device)
             for device in range(_c.lib.cgp_plan_devices(pipeline.plan._handle))]
    return [handle for handle in dict.fromkeys(found) if handle]


def gpu_of(pipeline: Any, output: int) -> Optional[str]:
    """Return PyTorch's name of the GPU that computes an output, or None if a CPU computes it."""
    plan = pipeline.plan._handle
    stage = _c.lib.cgp_plan_stage_at(plan, _c.lib.cgp_plan_output_stage(plan, output)).contents
    handle = pipeline._call(lambda: _c.lib.cgp_pipeline_stream(pipeline._handle, stage.device))
    ordinal = _c.lib.cgp_plan_device_at(plan, stage.device).contents.ordinal
    return GPU.format(ordinal) if handle else None


def view(pipeline: Any, what: str, index: int) -> Any:
    """Return a view of the memory of a "parameter", "gradient" or "state" (``what``). The view is a
    NumPy array or, on a GPU, a DeviceTensor. It keeps the memory alive.

    Raises:
        StateError: Another rank owns the memory, or the plan has no gradients.
    """
    tensor, device = _c.cgp_tensor(), ctypes.c_int()

    def run() -> bool:
        function = getattr(_c.lib, f"cgp_pipeline_{what}_tensor")
        try:
            _c.check(function(pipeline._handle, index, ctypes.byref(tensor)))
            return False
        except StateError:
            kind = getattr(_c, _KINDS[what])
            _c.check(_c.lib.cgp_pipeline_device_tensor(pipeline._handle, kind, index,
                                                       ctypes.byref(device), ctypes.byref(tensor)))
            return True

    is_there = pipeline._call(run)
    shape = tensor.shape.dims[:tensor.shape.rank]
    name, c_type = _TYPES[tensor.dtype]
    if is_there:
        ordinal = _c.lib.cgp_plan_device_at(pipeline.plan._handle, device).contents.ordinal
        return dlpack.DeviceTensor(pipeline._memory, (dlpack.CUDA, ordinal), shape, name,
                                   tensor.data)
    import numpy

    memory = (c_type * math.prod(shape)).from_address(tensor.data)
    memory.owner = pipeline._memory
    return numpy.frombuffer(memory, dtype=name).reshape(shape)
