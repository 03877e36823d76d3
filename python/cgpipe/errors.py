# SPDX-License-Identifier: Apache-2.0
"""Exceptions for the library's failures: one class per status. The text is the library's message.

    CgpipeError               base class of the others
      ArgumentError           an argument, option or input is wrong; nothing was changed
      OutOfMemoryError
      LimitError              a plan does not fit the memory of a device
      FileError               a file could not be opened, read, written or renamed
      FormatError             a file was read but is damaged or of another format
      StateError              the call is not legal in this state
      DeviceError             a device failed while running a step
      PeerError               another rank failed
      DiffersError            a step differs from its replay
"""

from __future__ import annotations

__all__ = ["ArgumentError", "CgpipeError", "DeviceError", "DiffersError", "FileError",
           "FormatError", "LimitError", "OutOfMemoryError", "PeerError", "StateError", "by_status"]


class CgpipeError(Exception):
    """A failure; str() is the message, ``object: expectation, got value (hint)``."""

    #: Name of the status in C.
    status = ""


class ArgumentError(CgpipeError, ValueError):
    """An argument, option or input is wrong; nothing was changed."""

    status = "CGP_EINVAL"


class OutOfMemoryError(CgpipeError, MemoryError):
    """Out of memory."""

    status = "CGP_ENOMEM"


class LimitError(CgpipeError):
    """A plan does not fit the memory of a device."""

    status = "CGP_ELIMIT"


class FileError(CgpipeError, OSError):
    """A file could not be opened, read, written or renamed."""

    status = "CGP_EIO"


class FormatError(CgpipeError, ValueError):
    """A file was read but is damaged or of another format."""

    status = "CGP_EFORMAT"


class StateError(CgpipeError, RuntimeError):
    """The call is not legal in this state; the message names the call that must come first."""

    status = "CGP_ESTATE"


class DeviceError(CgpipeError, RuntimeError):
    """A device failed while running a step."""

    status = "CGP_EDEVICE"


class PeerError(CgpipeError, RuntimeError):
    """Another rank failed; the message includes that rank's message."""

    status = "CGP_EPEER"


class DiffersError(CgpipeError, RuntimeError):
    """A step differs from its replay; the message names the device, if it is known."""

    status = "CGP_EDIFFERS"


_CLASSES = [CgpipeError, ArgumentError, OutOfMemoryError, LimitError, FileError, FormatError,
            StateError, DeviceError, PeerError, DiffersError]


def by_status(status: int, message: str) -> CgpipeError:
    """Return the exception for a status that is not CGP_OK."""
    known = 0 < status < len(_CLASSES)
    return (_CLASSES[status] if known else CgpipeError)(message or f"status {status}")
