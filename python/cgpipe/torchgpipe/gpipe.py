# SPDX-License-Identifier: Apache-2.0
"""GPipe: an ``nn.Sequential`` as a pipeline, with torchgpipe's arguments, attributes and errors.

    forward(input) --> Whole: all partitions in one graph, captured once per shapes, types and mode
                   --> Runtime (cgpipe.torch.runtime): plan, pipeline, autograd

The parameters of the nn.Sequential are also the parameters of the GPipe, under the names
partitions.<j>.<name>."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple, Union

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo

from cgpipe import _ranks
from cgpipe.torch.runtime import Options, Runtime
from cgpipe.torchgpipe.skip import fresh_skips, verify_skippables

__all__ = ["GPipe"]

Device = Union[torch.device, int, str]
TensorOrTensors = Union[Tensor, Tuple[Tensor, ...]]

#: Recomputation for each `checkpoint`. "always" and "except_last" also recompute cheap values
#: selectively.
_RECOMPUTE = {"always": "always+selective", "except_last": "except_last+selective",
              "never": "never"}
MODES = tuple(_RECOMPUTE)

_MOVING_DENIED = ("denied to move parameters and buffers: GPipe places them by `devices`, which is "
                  "set when it is made")


def _advise(message: str) -> str:
    return f"""{message}

A balance for measured times comes from cgpipe.torchgpipe.balance:

  from cgpipe.torchgpipe import GPipe
  from cgpipe.torchgpipe.balance import balance_by_time

  balance = balance_by_time(partitions, model, torch.empty(...))
  model = GPipe(model, balance, ...)
"""


def verify_module(module: nn.Sequential) -> None:
    """Raise unless a module is a Sequential of distinct children that share no parameters."""
    if not isinstance(module, nn.Sequential):
        raise TypeError("module must be nn.Sequential to be partitioned, got "
                        f"{type(module).__name__}")
    if len(list(module.named_children())) != len(module):
        raise ValueError("module with duplicate children is not supported")
    own = sum(len(list(child.parameters())) for child in module.children())
    if len(list(module.parameters())) != own:
        raise ValueError("module with duplicate parameters in distinct children is not supported")


def _check_balance(module: nn.Sequential, balance: List[int]) -> None:
    if len(module) != sum(balance):
        raise ValueError(_advise("module and sum of balance have different length "
                                 f"(module: {len(module)}, sum of balance: {sum(balance)})"))
    if any(layers <= 0 for layers in balance):
        raise ValueError(
            _advise(f"all balance numbers must be positive integer (balance: {balance})"))


def _devices(devices: Optional[Iterable[Device]], partitions: int) -> List[torch.device]:
    """Return a device for each partition, without surplus devices."""
    if devices is None:
        return [torch.device("cpu")] * partitions
    found = [torch.device(device) for device in devices]
    if len(found) < partitions:
        raise IndexError("too few devices to hold given partitions (devices: "
                         f"{len(found)}, partitions: {partitions})")
    return found[:partitions]


def _partitions(module: nn.Sequential, balance: List[int]) -> nn.ModuleList:
    children = list(module.named_children())
    partitions, first = [], 0
    for layers in balance:
        partitions.append(nn.Sequential(OrderedDict(children[first:first + layers])))
        first += layers
    return nn.ModuleList(partitions)


def check(value: Any, place: str = "") -> None:
    """Raise TypeError unless a value is a tensor or a tuple of tensors. ``place`` names the value
    in messages."""
    if isinstance(value, Tensor):
        return
    if not isinstance(value, tuple):
        raise TypeError("expected Tensor or tuple of Tensors, but got "
                        f"{type(value).__name__}{place}")
    for i, element in enumerate(value):
        if not isinstance(element, Tensor):
            raise TypeError(f"expected Tensor as element {i} of tuple, but got "
                            f"{type(element).__name__}{place}")


class Whole(nn.Module):
    """All partitions as one module of positional tensors, for capture. If ``tuple_in``, the tensors
    are the elements of an input tuple."""

    def __init__(self, partitions: nn.ModuleList, tuple_in: bool) -> None:
        super().__init__()
        self.partitions = partitions
        self.tuple_in = tuple_in

    def forward(self, *tensors: Tensor) -> TensorOrTensors:
        value: Any = tensors if self.tuple_in else tensors[0]
        with fresh_skips():
            for j, partition in enumerate(self.partitions):
                value = partition(value)
                check(value, f" from partitions.{j}")
        output: TensorOrTensors = value
        return output


class GPipe(nn.Module):
    """Train an ``nn.Sequential`` as a pipeline.

        model = GPipe(nn.Sequential(a, b, c, d), balance=[1, 1, 1, 1], chunks=8)
        loss = criterion(model(input), target)
        loss.backward()

    Args:
        module: the module to partition into consecutive groups of its children.
        balance: number of children of each partition.
        devices: devices of the partitions. None: each partition has a CPU device with its own
            worker.
        chunks: number of micro-batches, of ceil(N / chunks) samples.
        checkpoint: for which micro-batches backward recomputes activations: "always", "except_last"
            or "never".
        deferred_batch_norm: update running statistics once per mini-batch, with the statistics of
            the whole mini-batch.
        verify: prove each capture: compare two small steps with PyTorch. None: prove it unless
            CGPIPE_VERIFY=0 is in the environment.
        fallback: let PyTorch run layers that cannot be captured, inside the pipeline. False: refuse
            them.
        torch_threads: number of threads that PyTorch uses for these layers. The bits of their
            results depend on this number.

    Raises:
        TypeError: the module is no nn.Sequential, or stashes and pops do not match.
        ValueError: an argument or the balance is wrong.
        IndexError: there are fewer devices than partitions.

    The first forward with new shapes captures the module, plans memory and starts the workers. The
    parameters and running statistics then become views of the engine's memory. If the module cannot
    be captured, this forward raises CgpipeError; the message names the path and the op."""

    #: A capture refuses a module that has a pipeline inside.
    is_pipeline = True
    #: Number of layers of each partition.
    balance: List[int] = []
    #: Device of each partition. The input is on the first device, and the output on the last.
    devices: List[torch.device] = []
    #: Number of micro-batches.
    chunks: int = 1
    #: "always", "except_last" or "never".
    checkpoint: str = "except_last"

    def __init__(self, module: nn.Sequential, balance: Optional[Iterable[int]] = None, *,
                 devices: Optional[Iterable[Device]] = None, chunks: int = chunks,
                 checkpoint: str = checkpoint, deferred_batch_norm: bool = False,
                 verify: Optional[bool] = None, fallback: bool = True,
                 torch_threads: int = 1) -> None:
        super().__init__()
        _ranks.warn_alone("GPipe")
        chunks, checkpoint = int(chunks), str(checkpoint)
        if balance is None:
            raise ValueError(_advise("balance is required"))
        if chunks <= 0:
            raise ValueError(f"number of chunks must be positive integer, got {chunks}")
        if checkpoint not in MODES:
            raise ValueError("checkpoint is not one of 'always', 'except_last', or 'never', got "
                             f"'{checkpoint}'")
        verify_module(module)
        verify_skippables(module)
        balance = list(balance)
        _check_balance(module, balance)
        self.chunks, self.checkpoint, self.balance = chunks, checkpoint, balance
        self.devices = _devices(devices, len(balance))
        self.deferred_batch_norm, self.verify = bool(deferred_batch_norm), verify
        self.fallback, self.torch_threads = bool(fallback), int(torch_threads)
        if self.torch_threads <= 0:
            raise ValueError(f"torch_threads must be positive integer, got {torch_threads}")
        self.partitions = _partitions(module, balance)
        self._start()

    def _start(self) -> None:
        self._runtimes: Dict[bool, Tuple[Whole, Runtime]] = {}

    def _runtime(self, tuple_in: bool) -> Tuple[Whole, Runtime]:
        """Return the captured module and its runtime, which are made at the first use."""
        if tuple_in not in self._runtimes:
            whole = Whole(self.partitions, tuple_in)
            options = Options(name="GPipe", stages=self._stages(),
                              devices=[str(device) for device in self.devices], chunks=self.chunks,
                              recompute=_RECOMPUTE[self.checkpoint],
                              halves=self.checkpoint == "never",
                              deferred_batch_norm=self.deferred_batch_norm, verify=self.verify,
                              fallback=self.fallback, torch_threads=self.torch_threads)
            self._runtimes[tuple_in] = (whole, Runtime(whole, options))
        return self._runtimes[tuple_in]

    def _stages(self) -> List[str]:
        return [f"partitions.{j}" for j in range(len(self.partitions))]

    @_disable_dynamo  # torch.compile() calls this method without compiling it
    def forward(self, input: TensorOrTensors) -> TensorOrTensors:
        """Return the module's output for a mini-batch. Input and output are a tensor or a tuple of
        tensors, [N, ...] each.

        Raises:
            TypeError: the input or a partition's result is neither a tensor nor a tuple of tensors.
            CgpipeError: the module cannot be captured, or the pipeline failed.
        """
        check(input)
        if not self.devices:
            return input
        tensors = input if isinstance(input, tuple) else (input,)
        whole, runtime = self._runtime(isinstance(input, tuple))
        whole.training = self.training
        output: TensorOrTensors = runtime(*tensors)
        return output

    def _whole_for(self, input: TensorOrTensors) -> Tuple[nn.Module, Tuple[Tensor, ...]]:
        """Return the module that a forward of ``input`` captures, and the inputs of that module.
        cgpipe.torch.explain() uses them."""
        check(input)
        whole = Whole(self.partitions, isinstance(input, tuple))
        whole.training = self.training
        return whole, input if isinstance(input, tuple) else (input,)

    def report(self) -> str:
        """Return a text with a line for each layer that cannot be captured. PyTorch runs such a
        layer inside the pipeline. The line gives its path, its share of the pipeline's time, and
        the reason. Further lines are about the proof of each capture.
        """
        return "\n".join(filter(None, (runtime.report()
                                       for _, runtime in self._runtimes.values())))

    def __len__(self) -> int:
        """Return the number of layers."""
        return sum(self.balance)

    def __getitem__(self, index: int) -> nn.Module:
        """Return a layer. Negative indices count from the end."""
        if not isinstance(index, int):
            raise TypeError(f"index must be an int, got {type(index).__name__}")
        return list(self)[index]

    def __iter__(self) -> Iterator[nn.Module]:
        """Iterate over the layers of all partitions."""
        for partition in self.partitions:
            yield from partition.children()

    def cuda(self, device: Optional[Device] = None) -> "GPipe":
        """Raise TypeError, because a GPipe cannot be moved to another device."""
        raise TypeError(_MOVING_DENIED)

    def cpu(self) -> "GPipe":
        """Raise TypeError, because a GPipe cannot be moved to another device."""
        raise TypeError(_MOVING_DENIED)

    def to(self, *args: Any, **kwargs: Any) -> "GPipe":
        """Cast to a dtype. Raise TypeError for a device or a tensor."""
        if "device" in kwargs or "tensor" in kwargs or (
                args and isinstance(args[0], (torch.device, int, str, Tensor))):
            raise TypeError(_MOVING_DENIED)
        return super().to(*args, **kwargs)

    def __getstate__(self) -> Dict[str, Any]:
        """Return the state for copies and pickles: the module and the arguments. A copy makes its
        own engine at its first forward."""
        state = self.__dict__.copy()
        del state["_runtimes"]
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._start()
