# SPDX-License-Identifier: Apache-2.0
"""Tensors in the memory of devices, passed to and from other libraries by DLPack.

    borrowed()     the address of another library's tensor, e.g. of PyTorch, for one call
    DeviceTensor   a view of a pipeline's memory, for torch.from_dlpack() and others

Source: DLPack 1.0, https://dmlc.github.io/dlpack/latest/. This module uses the unversioned struct
DLManagedTensor, which every library reads and writes."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from cgpipe.errors import ArgumentError

__all__ = ["Borrowed", "DeviceTensor", "borrowed", "is_on_device"]

#: Codes of DLDeviceType: host memory, CUDA memory, and host memory pinned by CUDA.
CPU, CUDA, CUDA_HOST = 1, 2, 3


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("ordinal", ctypes.c_int)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int),
                ("dtype", _DataType), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_NAME = b"dltensor"
_CODES = {(2, 32): "float32", (0, 32): "int32", (0, 64): "int64"}
_TYPES = {"float32": _DataType(2, 32, 1), "int32": _DataType(0, 32, 1)}

_api = ctypes.pythonapi
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", _api))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))
# The destructor of a capsule gets only the capsule's address, without a reference to the capsule.
# So these functions take addresses.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api))
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api))


# --- tensors of other libraries ---


def is_on_device(value: Any) -> bool:
    """Return whether a value is a tensor in the memory of a CUDA device."""
    describe = getattr(value, "__dlpack_device__", None)
    return describe is not None and not isinstance(value, type) and describe()[0] == CUDA


class Borrowed(NamedTuple):
    """A tensor of another library. ``keep`` owns its memory."""

    keep: Any
    shape: Tuple[int, ...]
    dtype: str
    address: int


def borrowed(value: Any, name: str, streams: Sequence[int]) -> Borrowed:
    """Return the address of a tensor in device memory, and the object ``keep``, which keeps that
    memory alive.

    Args:
        value: A row-major tensor with ``__dlpack__()``.
        name: The tensor's name, for messages.
        streams: Handles of the streams that will use the tensor. They wait for the work that the
            other library has enqueued on the device so far.

    Raises:
        ArgumentError: The tensor is not row-major.
        TypeError: The element type is unknown to this module.
    """
    capsules: List[Any] = [value.__dlpack__(stream=stream) for stream in streams]
    tensor = _Managed.from_address(_pointer(capsules[0], _NAME)).tensor
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    size = 1
    for i in reversed(range(tensor.ndim)):
        if tensor.strides and shape[i] > 1 and tensor.strides[i] != size:
            raise ArgumentError(f"{name}: a row-major tensor is expected, got strides "
                                f"{[tensor.strides[j] for j in range(tensor.ndim)]} for shape "
                                f"{list(shape)} (copy it, or call contiguous())")
        size *= shape[i]
    dtype = _CODES.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise TypeError(f"{name}: float32 is expected, got DLPack's type {tensor.dtype.code} of "
                        f"{tensor.dtype.bits} bits (convert it)")
    return Borrowed(capsules, shape, dtype, (tensor.data or 0) + tensor.byte_offset)


# --- tensors for other libraries ---


#: Maps the address of each exported struct to the objects that the struct needs until the other
#: library calls its deleter.
_exported: Dict[int, Any] = {}


def _delete(address: int) -> None:
    _exported.pop(address, None)


def _drop(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # no library has taken the tensor out of the capsule
        _delete(_pointer_at(capsule, _NAME))


_DELETE, _DROP = _Callback(_delete), _Callback(_drop)


class DeviceTensor:
    """A view of a pipeline's memory on a device that has its own memory. Other libraries read the
    view by DLPack: ``torch.from_dlpack(view)``.

    The view, and each tensor made from it, keeps the memory alive. Read and write it only between
    calls of the pipeline; see :meth:`cgpipe.Pipeline.parameters_changed`."""

    def __init__(self, owner: Any, device: Tuple[int, int], shape: Sequence[int], dtype: str,
                 address: int) -> None:
        self._owner, self._device, self._address = owner, device, address
        self.shape, self.dtype = tuple(shape), dtype

    def __dlpack_device__(self) -> Tuple[int, int]:
        """Return the device's type in DLPack, and the device's ordinal."""
        return self._device

    def __dlpack__(self, *, stream: Optional[int] = None,
                   max_version: Optional[Tuple[int, int]] = None,
                   dl_device: Optional[Tuple[int, int]] = None,
                   copy: Optional[bool] = None) -> Any:
        """Return a capsule of the view. No stream has to wait, because the pipeline is idle between
        its calls.

        Raises:
            BufferError: The caller asks for a copy, or for another device.
        """
        if copy or (dl_device is not None and tuple(dl_device) != self._device):
            raise BufferError(f"DeviceTensor: a view on device {self._device} is expected, got a "
                              "wish for a copy (copy the view)")
        sizes = (ctypes.c_int64 * max(1, len(self.shape)))(*self.shape)
        managed = _Managed()
        managed.tensor = _Tensor(self._address, _Device(*self._device), len(self.shape),
                                 _TYPES[self.dtype], sizes, None, 0)
        managed.deleter = ctypes.cast(_DELETE, ctypes.c_void_p)
        address = ctypes.addressof(managed)
        _exported[address] = (managed, sizes, self._owner)
        return _new(address, _NAME, ctypes.cast(_DROP, ctypes.c_void_p))

    def __repr__(self) -> str:
        return (f"<cgpipe.DeviceTensor {self.dtype} {list(self.shape)} on device "
                f"{self._device[1]}>")
