# SPDX-License-Identifier: Apache-2.0
"""Run a set of nodes (convex.py) as a function of tensors, and test that it computes each sample
independently of the others."""

from __future__ import annotations

import contextlib
import operator
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
from torch import Tensor, nn

from cgpipe.torch.convex import Subgraph, is_region, multiple_of_samples
from cgpipe.torch.opaque import CALLS, drew, original
from cgpipe.torch.surroundings import PROOF_SEED, random_states, seeded, threads, unscaled
from cgpipe.torch.translator import shape_of
from cgpipe.torch.watch import attributes_kept, buffers_kept

__all__ = ["Function", "Part", "are_apart", "function_of"]

Function = Callable[[Sequence[Tensor]], List[Tensor]]
Shape = List[Tuple[bool, int]]


def function_of(subgraph: Subgraph, inputs: Sequence[Any], fixed: Dict[Any, Any],
                parameters: Sequence[Tensor]) -> Function:
    """Return a function that runs a subgraph. It takes a tensor for each node in ``inputs``, and
    returns a tensor for each output. ``fixed`` has the values of the subgraph's other arguments."""
    graph = torch.fx.Graph()
    env = {node: graph.placeholder(f"a{i}")
           for i, node in enumerate([*inputs, *subgraph.parameters, *fixed])}
    samples = graph.placeholder("samples")
    for node in subgraph.arguments:
        size = multiple_of_samples(node.meta.get("val"))
        if size is not None:
            env[node] = graph.call_function(operator.mul, (samples, size))
    for node in subgraph.nodes:
        env[node] = graph.node_copy(node, env.__getitem__)
        env[node].meta = {}
    graph.output([env[node] for node in subgraph.outputs])
    forward = torch.fx.GraphModule(nn.Module(), graph).forward
    shape = shape_of(inputs[0].meta["val"].shape)
    dim, size = next((d, size) for d, (batch, size) in enumerate(shape) if batch)
    rest = [*parameters, *fixed.values()]

    def function(given: Sequence[Tensor]) -> List[Tensor]:
        found: List[Tensor] = forward(*given, *rest, given[0].shape[dim] // size)
        return found
    return function


# --- samples ---


class Part:
    """A function for which the independence of samples is tested."""

    def __init__(self, function: Function, inputs: Sequence[Any], outputs: Sequence[Any],
                 parameters: Sequence[Tensor], fixed: Sequence[Any]) -> None:
        self.function, self.nodes = function, list(inputs)
        self.fixed = [x for x in [*fixed, *parameters] if isinstance(x, Tensor)]
        self.inputs, self.outputs = (
            [shape_of(node.meta["val"].shape) for node in nodes] for nodes in (inputs, outputs))
        self.parameters = [p for p in parameters if p.requires_grad]

    def run(self, given: Sequence[Tensor]) -> Tuple[List[Tensor], List[Tensor]]:
        """Return the results and the gradients of inputs, and the gradients of parameters."""
        leaves = [x.detach().requires_grad_(x.is_floating_point()) for x in given]
        results = self.function(leaves)
        pairs = [(y, _directions(y, shape)) for y, shape in zip(results, self.outputs)
                 if y.requires_grad]
        wanted = [*(x for x in leaves if x.requires_grad), *self.parameters]
        found: Sequence[Optional[Tensor]] = [None] * len(wanted)
        if pairs and wanted:
            found = torch.autograd.grad([y for y, _ in pairs], wanted, [g for _, g in pairs],
                                        allow_unused=True)
        whole = [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found)]
        count = len(wanted) - len(self.parameters)
        return [*(y.detach() for y in results), *whole[:count]], whole[count:]

    def shapes(self, given: Sequence[Tensor]) -> List[Shape]:
        """Return the shapes of the first list that run() returns."""
        return [*self.outputs, *(shape for x, shape in zip(given, self.inputs)
                                 if x.is_floating_point())]


def _directions(y: Tensor, shape: Shape) -> Tensor:
    """Return a gradient for a result. The gradient is the same for each sample."""
    dim = _dim(shape)
    sizes = list(y.shape)
    sizes[dim] = shape[dim][1]
    row = torch.randn(sizes, generator=torch.Generator().manual_seed(13), dtype=torch.float32)
    return torch.cat([row] * (y.shape[dim] // shape[dim][1]), dim)


def _dim(shape: Shape) -> int:
    return next(d for d, (batch, _) in enumerate(shape) if batch)


def _rows(x: Tensor, shape: Shape, first: int, count: int) -> Tensor:
    """Return samples first .. first + count - 1."""
    dim = _dim(shape)
    return x.narrow(dim, first * shape[dim][1], count * shape[dim][1])


def are_apart(parts: Sequence[Part], program: Any, module: nn.Module,
              examples: Sequence[Tensor]) -> List[bool]:
    """Return for each part whether it computes each sample independently of the other samples. The
    test uses the part's values for the example. If one sample is replaced, the results and
    gradients of the other samples must be bit-identical. If the two halves of the samples run
    separately, the results must be the same, up to rounding. The halves' gradients of parameters
    must add up to the gradients of the whole."""
    samples = 2 * examples[0].shape[0]
    rows = torch.arange(samples) % examples[0].shape[0]
    generator = torch.Generator().manual_seed(9)
    given = [x[rows] for x in examples]
    given = [x * (1 + 0.01 * torch.randn(x.shape, generator=generator, dtype=x.dtype))
             if x.is_floating_point() else x for x in given]
    with threads(1), buffers_kept(module), attributes_kept(module), torch.enable_grad(), \
            seeded(PROOF_SEED):
        values = _values(program, given, [node for part in parts for node in part.nodes])
        return [_is_apart(part, [values[node] for node in part.nodes], samples) for part in parts]


def _values(program: Any, inputs: Sequence[Tensor], wanted: Sequence[Any]) -> Dict[Any, Tensor]:
    """Return the values of nodes for these inputs."""
    kinds = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
    left, needed = list(inputs), set()
    pending = list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    readers = {node: sum(user in needed for user in node.users) + (node in wanted)
               for node in needed}
    env: Dict[Any, Any] = {}
    with torch.no_grad():
        for node in program.graph_module.graph.nodes:
            if node.op == "placeholder" and kinds[node.name].kind.name == "USER_INPUT":
                env[node] = left.pop(0)
            elif node in needed:
                env[node] = _value(program, node, env, kinds)
            for x in node.all_input_nodes if node in needed else ():
                readers[x] -= 1
                if not readers[x]:
                    del env[x]
    return {node: env[node] for node in wanted}


def _value(program: Any, node: Any, env: Dict[Any, Any], kinds: Dict[str, Any]) -> Any:
    if node.op == "placeholder":
        name = kinds[node.name].target
        found = program.state_dict.get(name)
        return program.constants[name] if found is None else found
    if node.op == "get_attr":
        found = program.graph_module
        for name in node.target.split("."):
            found = getattr(found, name)
        return found
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), env.__getitem__)
    if is_region(node):
        call = CALLS[args[1]]
        with original(call.module), \
                unscaled(call.module) if call.scales else contextlib.nullcontext():
            return call(args[0])
    return node.target(*args, **kwargs)


def _is_apart(part: Part, given: Sequence[Tensor], samples: int) -> bool:
    states, before = random_states(), [x.clone() for x in [*part.fixed, *given]]
    try:
        expected, whole = part.run(given)
        apart = _adds_up(part, given, samples, expected, whole) and all(
            _keeps_others(part, given, samples, expected, i) for i in (0, samples - 1))
    except Exception:  # any exception appears again when PyTorch runs the whole module
        return False
    # Some ops write to statistics although their schemas do not say so.
    unwritten = all(map(_same_bits, before, [*part.fixed, *given]))
    return apart and unwritten and not drew(states)


def _adds_up(part: Part, given: Sequence[Tensor], samples: int, expected: Sequence[Tensor],
             whole: Sequence[Tensor]) -> bool:
    """Return whether two halves of the samples give the results of the whole."""
    half, shapes = samples // 2, part.shapes(given)
    sums = [torch.zeros_like(g) for g in whole]
    for first in (0, half):
        own = [_rows(x, shape, first, half) for x, shape in zip(given, part.inputs)]
        found, gradients = part.run(own)
        if not all(_near(y, _rows(x, shape, first, half))
                   for x, y, shape in zip(expected, found, shapes)):
            return False
        sums = [a + b for a, b in zip(sums, gradients)]
    return all(map(_near, sums, whole))


def _near(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    finite = b[torch.isfinite(b)]
    size = float(finite.abs().max()) if finite.numel() else 1.0
    return bool(torch.allclose(a, b, 1e-4, 1e-4 * size, equal_nan=True))


def _keeps_others(part: Part, given: Sequence[Tensor], samples: int, expected: Sequence[Tensor],
                  i: int) -> bool:
    """Return whether the other samples keep their results if sample ``i`` is replaced: by NaN, by a
    perturbed copy, or by a value between other samples."""
    shapes, tried = part.shapes(given), 0
    for k, change in enumerate((_nan, _moved, _between)):
        changed = [_with(x, shape, i, change) for x, shape in zip(given, part.inputs)]
        try:
            found, _ = part.run(changed)
        # A NaN or a moved sample may be out of range, but a value between samples is in range.
        except Exception:
            if k == 2:
                raise
            continue
        tried += 1
        first, last = (1, samples - 1) if i == 0 else (0, samples - 1)
        for x, y, shape in zip(expected, found, shapes):
            if not _same_bits(_rows(x, shape, first, last), _rows(y, shape, first, last)):
                return False
    return tried > 0


def _with(x: Tensor, shape: Shape, i: int, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    x = x.clone()
    row = _rows(x, shape, i, 1)
    other = _rows(x, shape, 1 if i == 0 else 0, 1)
    row.copy_(change(row, other))
    return x


def _nan(row: Tensor, _other: Tensor) -> Tensor:
    return torch.full_like(row, float("nan")) if row.is_floating_point() else row


def _moved(row: Tensor, _other: Tensor) -> Tensor:
    noise = torch.randn(row.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float32)
    return row + noise if row.is_floating_point() else row


def _between(row: Tensor, other: Tensor) -> Tensor:
    return 0.75 * row + 0.25 * other if row.is_floating_point() else other.clone()


def _same_bits(a: Tensor, b: Tensor) -> bool:
    a, b = (x.detach().contiguous().flatten().view(torch.uint8) for x in (a, b))
    return bool(torch.equal(a, b))
