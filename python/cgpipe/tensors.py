# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays and PyTorch tensors as the library's tensors, without a copy.

Contiguous float32 and int32 arrays are passed by address. int64 (PyTorch's labels) is copied to
int32, and a non-contiguous array is copied to a contiguous one. Other types are refused, so nothing
is rounded silently. A pipeline on GPUs also takes float32 tensors in GPU memory (dlpack.py).
Integers in GPU memory are copied to the host, where their range is checked."""

from __future__ import annotations

import ctypes
import sys
from typing import Any, List, Optional, Sequence, Tuple

from cgpipe import _c, dlpack
from cgpipe.errors import ArgumentError
from cgpipe.model import Value

__all__ = ["empty_like", "is_torch", "pointers", "tensor", "whole"]

_CODES = {"float32": _c.ENUMS["cgp_dtype"].index("CGP_F32"),
          "int32": _c.ENUMS["cgp_dtype"].index("CGP_I32")}


def is_torch(value: Any) -> bool:
    """Return whether a value is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor(value: Any, expected: Value, streams: Sequence[int] = ()) -> Tuple[Any, Any]:
    """Return a cgp_tensor of an array [N, ...], and the object that owns its memory.

    Args:
        value: An array or tensor, or anything that NumPy converts to an array.
        expected: Shape and type of one sample. If a sample has one element, the shape [N] is
            accepted in place of [N, 1].
        streams: Streams of the pipeline's GPUs. If there are none, the value must be in host
            memory.

    Raises:
        TypeError: The value has another type.
        ArgumentError: The value has another shape, has an integer out of range, or is in memory
            that the pipeline cannot read.
    """
    keep, shape, address = whole(value, expected, streams)
    if len(shape) == 1 and expected.shape == (1,):
        shape = (shape[0], 1)
    if shape[1:] != expected.shape or not shape:
        sizes = ", ".join(map(str, expected.shape))
        raise ArgumentError(
            f"{expected.name}: shape [N, {sizes}] is expected, got {list(shape)}")
    dims = (ctypes.c_int64 * _c.MAX_RANK)(*shape)
    return _c.cgp_tensor(_CODES[expected.dtype], _c.cgp_shape(len(shape), dims), address), keep


def whole(value: Any, expected: Value,
          streams: Sequence[int] = ()) -> Tuple[Any, Tuple[int, ...], int]:
    """Return the owner of an array's memory, the array's shape and its address. Raise the same
    errors as tensor()."""
    if is_on_device(value):
        return _on_device(value, expected, streams)
    keep, address = _of_torch(value, expected) if is_torch(value) else _of_numpy(value, expected)
    return keep, tuple(keep.shape), address


def is_on_device(value: Any) -> bool:
    """Return whether a value is a tensor in a GPU's memory."""
    return bool(value.device.type == "cuda") if is_torch(value) else dlpack.is_on_device(value)


def _on_device(value: Any, expected: Value,
               streams: Sequence[int]) -> Tuple[Any, Tuple[int, ...], int]:
    if is_torch(value):
        value = value.detach()
        if expected.dtype != "float32" or not streams:
            return whole(value.cpu(), expected)
        value = value.contiguous()
    if not streams:
        raise ArgumentError(f"{expected.name}: a tensor in host memory is expected, got one on "
                            f"device {value.__dlpack_device__()[1]} (copy it)")
    keep, shape, dtype, address = dlpack.borrowed(value, expected.name, streams)
    if expected.dtype != "float32":
        raise ArgumentError(f"{expected.name}: integers in host memory are expected, where their "
                            f"range is checked, got {dtype} on a device (copy it)")
    if dtype != "float32":
        raise TypeError(f"{expected.name}: float32 is expected, got {dtype} (convert it)")
    return keep, shape, address


def _of_numpy(value: Any, expected: Value) -> Tuple[Any, int]:
    import numpy

    if isinstance(value, numpy.ma.MaskedArray):
        raise TypeError(f"{expected.name}: an array without a mask is expected, which would be "
                        "lost (filled() or .data)")
    array = numpy.asarray(value)
    if expected.dtype == "int32" and array.dtype == numpy.int64:
        array = _narrow(array, numpy.int32, expected)
    if str(array.dtype) != expected.dtype:
        raise TypeError(
            f"{expected.name}: {expected.dtype} is expected, got {array.dtype} (convert it)")
    array = numpy.ascontiguousarray(array).reshape(array.shape)
    return array, array.ctypes.data


def _of_torch(value: Any, expected: Value) -> Tuple[Any, int]:
    torch = sys.modules["torch"]
    if value.device.type != "cpu":
        raise ArgumentError(f"{expected.name}: a tensor in host memory, or in a GPU's, is "
                            f"expected, got one on {value.device} (.cpu())")
    if value.layout != torch.strided:
        raise TypeError(f"{expected.name}: a dense tensor is expected, got one of layout "
                        f"{value.layout} (.to_dense())")
    value = value.detach().resolve_neg()
    if expected.dtype == "int32" and value.dtype == torch.int64:
        value = _narrow(value, torch.int32, expected)
    if str(value.dtype) != f"torch.{expected.dtype}":
        raise TypeError(
            f"{expected.name}: {expected.dtype} is expected, got {value.dtype} (convert it)")
    value = value.contiguous()
    return value, value.data_ptr()


def _narrow(value: Any, dtype: Any, expected: Value) -> Any:
    """Return integers as int32. Refuse integers that do not fit."""
    size = value.numel() if is_torch(value) else value.size
    if size and (int(value.min()) < -2**31 or int(value.max()) >= 2**31):
        raise ArgumentError(f"{expected.name}: integers of 32 bits are expected, got "
                            f"{int(value.min())} to {int(value.max())}")
    return value.to(dtype) if is_torch(value) else value.astype(dtype)


def empty_like(shape: Sequence[int], dtype: str, like: Sequence[Any],
               device: Optional[str] = None) -> Any:
    """Return a new array. If ``like`` contains a PyTorch tensor, the array is a PyTorch tensor. If
    ``like`` contains a PyTorch tensor on a GPU, the array is on ``device``."""
    if any(map(is_torch, like)):
        torch = sys.modules["torch"]
        there = any(is_torch(value) and is_on_device(value) for value in like)
        return torch.empty(tuple(shape), dtype=getattr(torch, dtype),
                           device=device if there else None)
    import numpy

    return numpy.empty(tuple(shape), dtype=dtype)


class pointers:
    """An array of pointers to cgp_tensors, with the owners of their memory. None becomes NULL.
    ``streams`` are the streams of the pipeline's GPUs."""

    def __init__(self, values: Sequence[Optional[Any]], expected: Sequence[Value],
                 what: str = "input", streams: Sequence[int] = ()) -> None:
        if len(values) != len(expected):
            names = " ".join(value.name for value in expected)
            raise ArgumentError(
                f"{what}s: {len(expected)} are expected ({names}), got {len(values)}")
        self.keep: List[Any] = []
        self.tensors: List[Any] = []
        self.array = (ctypes.POINTER(_c.cgp_tensor) * max(1, len(values)))()
        self.count = len(values)
        self.samples = 0
        for i, (value, wanted) in enumerate(zip(values, expected)):
            if value is None:
                continue
            struct, keep = tensor(value, wanted, streams)
            self.keep.append(keep)
            self.tensors.append(struct)
            self.array[i] = ctypes.pointer(struct)
            self.samples = int(struct.shape.dims[0])
