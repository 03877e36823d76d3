# SPDX-License-Identifier: Apache-2.0
"""Parts of a module's output that a captured module does not return: objects that contain tensors,
such as a cache of keys and values."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from cgpipe.torch.watch import CaptureError

__all__ = ["Lost", "has_tensors"]

#: The depth to which has_tensors() looks into objects.
DEEP = 4


def has_tensors(x: Any, deep: int = DEEP) -> bool:
    """Return whether an object, or an object in its attributes, holds a tensor."""
    if isinstance(x, Tensor):
        return True
    if deep == 0:
        return False
    parts = (x.values() if isinstance(x, dict) else x if isinstance(x, (list, tuple, set))
             else getattr(x, "__dict__", {}).values())
    return any(has_tensors(part, deep - 1) for part in parts)


class Lost:
    """Replaces an object in an output. Every use of it raises an exception."""

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_name", name)

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise CaptureError(f"{object.__getattribute__(self, '_name')}: a captured module returns "
                           "tensors, and this object holds tensors that it does not compute "
                           "(return the tensors themselves)")

    def __repr__(self) -> str:
        return f"<{object.__getattribute__(self, '_name')}: not computed by the capture>"

    __getattr__ = __setattr__ = __getitem__ = __iter__ = __len__ = __call__ = __bool__ = _raise
