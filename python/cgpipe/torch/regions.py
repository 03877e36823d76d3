# SPDX-License-Identifier: Apache-2.0
"""The regions of a captured module (region.py), and the settings that the caller of a step makes
for them."""

from __future__ import annotations

import ctypes
import time
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

from cgpipe.errors import ArgumentError
from cgpipe.torch.finding import ITSELF, called, fold
from cgpipe.torch.measured import bytes_of, of_a_sample
from cgpipe.torch.region import Region
from cgpipe.torch.surroundings import put

__all__ = ["Regions"]


class Regions:
    """The regions of a captured module, and the settings that the caller of a step makes for
    them."""

    def __init__(self, training: bool) -> None:
        self.all: List[Region] = []
        #: True if the module was captured in training mode.
        self.training = training
        #: Which forwards keep autograd's graph for their backward. True: all forwards. False: the
        #: last forward and recomputed forwards. None: no forward, because inputs move before the
        #: backward.
        self.keep: Optional[bool] = None
        #: True if forwards record gradients; None: only in training.
        self.gradient: Optional[bool] = None
        #: Threads of PyTorch in regions.
        self.threads = 1
        #: The context manager with which a proof leaves out dropout. If it is set, regions draw
        #: random numbers from PROOF_SEED.
        self.proving: Any = None
        #: Seconds of all runs, multiplied by the number of devices.
        self.seconds = 0.0
        self._warned = False
        #: Names of the parameters that a gradient has reached in the last step.
        self.reached: Set[str] = set()
        #: Inputs of regions, as pairs (op, index). ``asked`` has the inputs that a backward of the
        #: last step left without a gradient. ``passed`` has the inputs that got a gradient.
        self.asked: Set[Tuple[str, int]] = set()
        self.passed: Set[Tuple[str, int]] = set()
        self._error: Optional[BaseException] = None

    def use_threads(self, number: int) -> None:
        """Let PyTorch use this number of threads in regions.

        Raises:
            ArgumentError: The number is not positive.
        """
        if number < 1:
            raise ArgumentError(f"torch_threads: at least 1 is expected, got {number}")
        self.threads = number

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def buffers(self) -> List[Tensor]:
        """Buffers that regions may write to."""
        return [buffer for region in self.all for buffer in region.buffers]

    @property
    def scaled(self) -> List[Tensor]:
        """Weights that regions scale in forward."""
        return [weight for region in self.all for weight in region.scaled]

    @property
    def attributes(self) -> List[Tuple[nn.Module, str]]:
        """Attributes that regions set."""
        return [entry for region in self.all for entry in region.attributes]

    @property
    def stopped(self) -> Set[Tuple[str, int]]:
        """Inputs of regions, as pairs (op, index), if no gradient has reached them in the last
        step."""
        return self.asked - self.passed

    @property
    def draws(self) -> bool:
        """True if a region draws random numbers."""
        return any(region.draws for region in self.all)

    def array(self) -> Tuple[Any, int]:
        """Return the ops as a C array, and the length of the array."""
        ops = [op for region in self.all for op in region.ops]
        array = (ctypes.c_void_p * max(1, len(ops)))(*[ctypes.addressof(op) for op in ops])
        return array, len(ops)

    def check_limit(self) -> None:
        """Raise if a training plan has a memory limit, but the memory of regions is not known.

        Raises:
            ArgumentError: The memory is not known.
        """
        for region in self.all:
            if not region.kept_bytes:
                raise ArgumentError(f"{region.name}: PyTorch runs it inside the pipeline, and its "
                                    "memory is not measured (verify=True measures it): no "
                                    "memory_limit is expected")

    def check(self, devices: Sequence[str], deferred_batch_norm: bool, ranks: int = 1) -> None:
        """Raise unless a plan with these options can run the regions.

        Raises:
            ArgumentError: The plan cannot run the regions.
        """
        for region in self.all:
            name = region.name
            for device in devices:
                if str(device).startswith("cuda"):
                    raise ArgumentError(f"{name}: PyTorch runs it inside the pipeline, for which "
                                        f"the device cpu is expected, got {device} "
                                        "(cgpipe.torch.explain() has the reason)")
            if ranks > 1:
                raise ArgumentError(f"{name}: PyTorch runs it inside the pipeline, for which one "
                                    f"rank is expected, got {ranks} (cgpipe.torch.explain() "
                                    "has the reason)")
            if deferred_batch_norm and region.writes_buffers:
                raise ArgumentError(f"{name}: PyTorch runs it inside the pipeline, and writes to "
                                    "its buffers for each micro-batch: deferred_batch_norm=False "
                                    "is expected, got True")

    def rename(self, own: Callable[[str], str]) -> None:
        """Replace each path, in modules, parameters and reasons, by the result of a function."""
        for region in self.all:
            region.path, region.reason = own(region.path), region.reason.renamed(own)
            region.parameters = [(own(key), p) for key, p in region.parameters]

    def restart_times(self) -> None:
        """Forget the seconds of all runs."""
        self.seconds = 0.0
        for region in self.all:
            region.seconds = 0.0

    def report(self) -> str:
        """Return a line for each region. The line gives the module, its share of the pipeline's
        time, the memory that PyTorch keeps from forward to backward, and why the module was not
        captured. Modules that are alike share a line. The pipeline's time is the sum over all
        devices."""
        alike: Dict[Tuple[str, str], List[Region]] = {}
        for region in self.all:
            text = f"only {', '.join(map(called, region.only))}; " if region.only else ""
            text += "mixes the samples of a micro-batch; " if region.mixes else ""
            text += region.reason.of(region.path)
            alike.setdefault((type(region.module).__name__, text), []).append(region)
        return "\n".join(self._line(kind, text, found) for (kind, text), found in alike.items())

    def _line(self, kind: str, text: str, regions: Sequence[Region]) -> str:
        seconds = sum(region.seconds for region in regions)
        share = (f"{100 * seconds / self.seconds:.0f} % of the time" if self.seconds
                 else "has not run")
        paths = ", ".join(fold(region.path for region in regions)) or ITSELF
        kept = sum(of_a_sample(region.kept_bytes) for region in regions if region.kept_bytes)
        keeps = f"keeps {bytes_of(kept)} a sample; " if kept else ""
        return f"{paths} ({kind}): {share}; {keeps}{text}"

    def warn(self) -> None:
        """Warn once, after a run, that PyTorch runs parts of the pipeline."""
        if self.all and not self._warned:
            self._warned = True
            warnings.warn("PyTorch runs parts of the pipeline (fallback=False refuses them):\n"
                          + self.report(), stacklevel=3)

    def keep_error(self, region: Region, error: BaseException) -> None:
        """Keep the first exception of a run."""
        if self._error is None:
            if hasattr(error, "add_note"):
                error.add_note(f"in {region.name}, which PyTorch runs inside the pipeline")
            self._error = error

    def call(self, function: Callable[[], Any], devices: int = 1) -> Any:
        """Call a function that runs the pipeline on this number of devices. If the code of a region
        raised an exception, restore the buffers and raise the exception again."""
        if not self.all:
            return function()
        self._error, begin, threads = None, time.perf_counter(), torch.get_num_threads()
        written = [*self.buffers, *self.scaled]
        before = [tensor.detach().clone() for tensor in written]
        try:
            return function()
        except Exception:
            put(written, before)
            for region in self.all:
                region.forget()
            if self._error is not None:
                error, self._error = self._error, None
                raise error from None
            raise
        finally:
            torch.set_num_threads(threads)  # new threads begin with the number that was set last
            self.seconds += devices * (time.perf_counter() - begin)

    def forget(self) -> None:
        """Begin a step: drop the tensors kept by forwards that had no backward."""
        self.reached.clear()
        self.asked.clear()
        self.passed.clear()
        for region in self.all:
            region.forget()
