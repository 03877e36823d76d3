# SPDX-License-Identifier: Apache-2.0
"""The state, besides tensors, that a region's code reads and changes: random numbers, buffers,
modes, hooks of parameters, threads. Each of them is set for a call and restored after the call."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import Tensor, nn

__all__ = ["PROOF_SEED", "add_storage", "buffers_replaced", "counting", "evaluating", "put",
           "random_states", "seeded", "threads", "unscaled", "without_hooks",
           "without_saving_hooks"]

#: Seed of all regions while a capture is proven.
PROOF_SEED = 17

#: PyTorch has one random generator per process, so only one region at a time may draw from it.
_DRAWS = threading.RLock()


def random_states() -> Tuple[Any, ...]:
    """Return the states of the random generators of PyTorch, Python and, if it is imported,
    NumPy."""
    numpy = sys.modules.get("numpy")
    return (torch.get_rng_state(), random.getstate(),
            None if numpy is None else numpy.random.get_state())


def _set_random_states(states: Tuple[Any, ...]) -> None:
    """Set the states that random_states() returned."""
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    if states[2] is not None:
        sys.modules["numpy"].random.set_state(states[2])


@contextlib.contextmanager
def seeded(seed: Optional[int]) -> Iterator[None]:
    """Seed the generators, and restore the caller's states afterwards. If the seed is None, do
    nothing, because no random numbers are drawn."""
    if seed is None:
        yield
        return
    with _DRAWS:
        before = random_states()
        try:
            torch.manual_seed(seed)
            random.seed(seed)
            if before[2] is not None:
                sys.modules["numpy"].random.seed(seed & 0xffffffff)
            yield
        finally:
            _set_random_states(before)


def put(buffers: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for buffer, value in zip(buffers, values):
            buffer.copy_(value)


@contextlib.contextmanager
def buffers_replaced(module: nn.Module, buffers: Sequence[Tensor],
                      copies: List[Tensor]) -> Iterator[None]:
    """Replace buffers by copies, so that autograd's graph refers to the copies. If the module
    itself replaces a buffer, its new tensor is stored in ``copies``."""
    index = {id(buffer): i for i, buffer in enumerate(buffers)}
    new = {id(buffer): value for buffer, value in zip(buffers, copies)}
    places = [(child._buffers, key, b) for child in module.modules() if buffers
              for key, b in child._buffers.items() if id(b) in new]
    try:
        for table, key, b in places:
            table[key] = new[id(b)]
        yield
    finally:
        for table, key, b in places:
            if isinstance(table.get(key), Tensor) and table[key] is not new[id(b)]:
                copies[index[id(b)]] = table[key].detach()
            table[key] = b


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode."""
    before = [(child, child.training) for child in module.modules()]
    try:
        for child, _ in before:
            child.training = False
        yield
    finally:
        for child, training in before:
            child.training = training


@contextlib.contextmanager
def unscaled(module: Any) -> Iterator[None]:
    """Let an nn.Embedding look up its rows as they are, without its max_norm."""
    before = module.max_norm
    try:
        module.max_norm = None
        yield
    finally:
        module.max_norm = before


@contextlib.contextmanager
def without_hooks(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Disable the hooks of parameters inside a region. They run later, when autograd accumulates
    the gradients of the parameters."""
    tables = [(p._backward_hooks, dict(p._backward_hooks)) for p in parameters
              if p._backward_hooks]
    for table, _ in tables:
        table.clear()
    try:
        yield
    finally:
        for table, entries in tables:
            table.update(entries)


def without_saving_hooks(function: Callable[[], Any]) -> Any:
    """Call a function without the calling thread's hooks for saved tensors, because nothing can be
    traced under such hooks. (torch.utils.checkpoint sets such hooks.) Hooks belong to a thread, so
    another thread calls the function."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is None:
        return function()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


@contextlib.contextmanager
def counting(places: Set[int]) -> Iterator[Dict[int, int]]:
    """Count the memory that autograd keeps for a backward. The dictionary maps the address of each
    storage to its size in bytes. Storages at the addresses in ``places`` do not count."""
    found: Dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        add_storage(found, x, places)
        return x
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        yield found


def add_storage(found: Dict[int, int], x: Tensor, places: Set[int]) -> None:
    """Count the storage of a tensor."""
    storage = x.untyped_storage()
    if storage.data_ptr() not in places:
        found[storage.data_ptr()] = storage.nbytes()


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    """Let PyTorch use this number of threads on the calling thread."""
    before = torch.get_num_threads()
    if before != number:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        if before != number:
            torch.set_num_threads(before)
