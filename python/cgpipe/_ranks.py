# SPDX-License-Identifier: Apache-2.0
"""Connect the processes that a launcher started: each becomes a rank of one pipeline
(cgpipe/ext/transport.h).

The launcher's environment variables give the number of processes. An MPI plug-in connects them:

    mpirun -n 2 python train.py      plan: ranks=2      pipeline: its devices of the plan

If an exception ends one process, the calls of all other processes fail. When a program ends
normally, pipelines that are still open are closed first, because MPI must end on all ranks
together."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
import warnings
from typing import Any, Callable, List, Optional

from cgpipe import _c
from cgpipe.errors import ArgumentError, StateError

__all__ = ["Communicator", "number", "warn_alone"]

# Environment variables that give the number of processes. Open MPI, MPICH's process manager and
# srun set them, in this order.
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")

# Communicators in order of creation, which is the same on all ranks.
_living: "List[Communicator]" = []


def _whole(name: str) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else 0


def launched() -> int:
    """Return the number of processes that an MPI launcher started, or 1 if there is no launcher."""
    return next((_whole(name) for name in _SIZES if _whole(name)), 1)


def number(ranks: Optional[int]) -> int:
    """Return the number of ranks of a plan. If ``ranks`` is None, this is the number of processes.

    Raises:
        StateError: A launcher other than an MPI launcher started several processes.
    """
    if ranks is not None:
        return _c.integer(ranks, "ranks")
    processes = _whole("WORLD_SIZE")
    if launched() == 1 and processes > 1 and "RANK" in os.environ:
        raise StateError(
            f"ranks: {processes} processes were started without MPI (by torchrun?), and each would "
            f"train alone (mpirun -n {processes} python ..., or ranks=1 if each is to train alone)")
    return launched()


def of_replica(ranks: Optional[int], replicas: int) -> int:
    """Return the number of ranks of each replica of a plan. Replicas of one process are threads.

    Raises:
        ArgumentError: The replicas cannot share the processes evenly.
    """
    processes = number(ranks)
    if ranks is not None or replicas <= 1 or processes == 1:
        return processes
    if processes % replicas:
        raise ArgumentError(f"replicas: one process or a multiple of {replicas} is expected, got "
                            f"{processes} (mpirun -n {replicas} python ...)")
    return processes // replicas


def warn_alone(what: str) -> None:
    """Warn if a launcher started several processes, but each of them trains ``what`` alone."""
    processes = launched()
    if processes == 1 and "RANK" in os.environ:  # torchrun
        processes = _whole("WORLD_SIZE")
    if processes > 1:
        warnings.warn(
            f"{what}: one process is expected, but {processes} were started, and each trains alone "
            f"(mpirun -n {processes} with cgpipe.Pipeline makes one pipeline of all)", stacklevel=3)


def hint(error: ArgumentError, ranks: Optional[int]) -> ArgumentError:
    """Return the error of a plan that failed. If the launcher may be the cause, the message says
    so."""
    if ranks is None and launched() > 1 and str(error).startswith("ranks: "):
        return ArgumentError(f"{error}: {launched()} processes were started (stages={launched()}, "
                             "or ranks=1 if each is to train alone)")
    return error


class Communicator:
    """The MPI communicator of this process. One pipeline uses it, only on the thread that created
    the communicator."""

    def __init__(self, ranks: int) -> None:
        """Connect this process with the others. Call it on the pipeline's thread.

        Raises:
            ArgumentError: There is no MPI plug-in.
            StateError: MPI does not have as many processes as the plan has ranks.
        """
        found, handle = ctypes.POINTER(_c.cgp_transport)(), ctypes.c_void_p()
        _c.check(_c.lib.cgp_transport_find(ctypes.byref(found), b"mpi"))
        self.transport = found
        table = self._table = found.contents
        create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        _c.check(create(table.communicator_create)(None, ctypes.addressof(handle)))
        self.handle, self._lock = handle, threading.Lock()
        ask = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self.rank, self.ranks = ask(table.rank)(handle), ask(table.ranks)(handle)
        if self.ranks != ranks:
            self.destroy()
            raise StateError(
                f"ranks: the plan has {ranks}, but MPI has {self.ranks} processes (start the "
                f"program with mpirun -n {ranks}, of the MPI that cgpipe was built with)")
        _watch_end()
        _living.append(self)

    def fail(self, text: str) -> None:
        """Make the calls of all ranks fail, because this process ends with an exception."""
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
        status = _c.ENUMS["cgp_status"].index("CGP_ESTATE")
        with self._lock:  # the pipeline's thread may be about to destroy the handle
            if self.handle:
                function(self._table.failures.fail)(self.handle, status, text.encode())

    def destroy(self) -> None:
        """Destroy the communicator. Call this after the pipeline was destroyed, on the pipeline's
        thread."""
        with self._lock:
            handle, self.handle = self.handle, ctypes.c_void_p()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._table.communicator_destroy)(handle)
        if self in _living:
            _living.remove(self)

    #: The function that closes the pipeline.
    close: Callable[[], None] = staticmethod(lambda: None)


_watched = False


def _watch_end() -> None:
    """Make sure that an exception which ends this process reaches the other ranks, and that all
    pipelines are closed when the process ends."""
    global _watched
    if _watched:
        return
    _watched = True
    before = sys.excepthook

    def failed(kind: Any, value: Any, trace: Any) -> None:
        """Handle an uncaught exception."""
        for communicator in list(_living):
            communicator.fail(f"{kind.__name__}: {value}")
        before(kind, value, trace)

    sys.excepthook = failed
    atexit.register(_close_all)


def _close_all() -> None:
    for communicator in list(_living):
        communicator.close()
        last = time.monotonic() + 5
        # If a pipeline was garbage-collected, its thread may still be closing it.
        while communicator in _living and time.monotonic() < last:
            time.sleep(0.005)
