# SPDX-License-Identifier: Apache-2.0
"""A thread that creates a pipeline and makes all calls on it, because only the creating thread may
use a pipeline.

A caller on any thread blocks until its call has ended. If a signal comes during a call (Ctrl-C),
its exception (KeyboardInterrupt) is raised only after the call. So a signal never interrupts a
step.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, Optional

from cgpipe import _c
from cgpipe.errors import StateError

__all__ = ["Worker"]


class _Job:
    """A call, its result, and whether it is done."""

    def __init__(self, function: Callable[..., Any], arguments: Any) -> None:
        self.function, self.arguments = function, arguments
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.begun = False
        self.done = threading.Event()

    def run(self) -> None:
        if self.begun:
            return
        self.begun = True
        try:
            self.result = self.function(*self.arguments)
        except BaseException as error:  # the waiting thread raises this error again
            self.error = error
        self.function = self.arguments = None  # type: ignore[assignment]
        self.done.set()


class Worker:
    """A thread that runs calls in order until this object is garbage-collected."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._jobs: "queue.SimpleQueue[Optional[_Job]]" = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._jobs,), name="cgpipe", daemon=True).start()
        _c.when_gone(self, self._jobs.put, None)

    @property
    def is_own(self) -> bool:
        """True if the thread runs in this process. False in a child process that fork() made,
        because a child does not inherit the thread."""
        return os.getpid() == self._pid

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run ``function(*arguments)`` on the thread. Return the result of ``function``, or raise
        its exception.

        Raises:
            StateError: This process is a child of the process that has the thread.
        """
        if not self.is_own:
            raise StateError("pipeline: belongs to the process that made it, and this is a child "
                             "of it (make a pipeline here)")
        job = _Job(function, arguments)
        interrupt: Optional[BaseException] = None
        queued = False
        while not job.done.is_set():
            try:
                if not queued:
                    # A signal may cause a second put, but the job runs only once.
                    self._jobs.put(job)
                    queued = True
                job.done.wait()
            except BaseException as error:  # a signal handler raised this error
                interrupt = error
        if interrupt is not None:
            raise interrupt from job.error
        if job.error is not None:
            raise job.error
        return job.result

    def post(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Queue a call on the thread without waiting for it. In a child process, do nothing."""
        if self.is_own:
            self._jobs.put(_Job(function, arguments))


def _serve(jobs: "queue.SimpleQueue[Optional[_Job]]") -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job.run()
        del job
