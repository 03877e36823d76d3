# SPDX-License-Identifier: Apache-2.0
"""Compare a captured module with itself in PyTorch, in float64. Where PyTorch's own float32 is off by more than the bound, norms over few
values make small differences large: there four times PyTorch's difference is allowed."""

import copy

import torch

from cgpipe.torch.runtime import Options, Runtime

OUTPUTS, GRADIENTS = 1e-5, 1e-4


def far(got, expected):
    """Return the largest difference, relative to the largest element."""
    largest = float(expected.detach().abs().max())
    return float((got.detach().double() - expected.detach().double()).abs().max()) / (largest or 1.0)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def run(module, inputs, weights):
    """Run a module forward and backward; return its outputs, and gradients and buffers by name."""
    given = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = as_tuple(module(*given))
    sum((y * w.to(y.dtype)).sum() for y, w in zip(outputs, weights)).backward()
    found = {f"input {i}": x.grad for i, x in enumerate(given) if x.is_floating_point()}
    return outputs, found


def compare(test, module, *inputs, chunks=1, devices=("cpu",), outputs=OUTPUTS, gradients=GRADIENTS):
    """Check outputs, gradients of parameters and inputs, and running statistics, of a step; return the module that ran here."""
    double, single = copy.deepcopy(module).double(), copy.deepcopy(module)
    with torch.no_grad():
        weights = [torch.randn(y.shape) for y in as_tuple(copy.deepcopy(module)(*inputs))]
    runtime = Runtime(module, Options(chunks=chunks, devices=list(devices)))
    runs = [run(runtime, inputs, weights), run(double, [x.double() if x.is_floating_point() else x for x in inputs], weights),
            run(single, inputs, weights)]
    for net, (_, found) in zip((module, double, single), runs):
        found.update((name, p.grad) for name, p in net.named_parameters())
    (got, ours), (want, exact), (rough, theirs) = runs
    test.assertEqual([y.shape for y in got], [y.shape for y in want])
    for x, y, z in zip(got, want, rough):
        test.assertLess(far(x, y), max(outputs, 4 * far(z, y)))
    for name, expected in exact.items():
        test.assertIsNotNone(ours[name], name)
        if float(expected.abs().max()) > 1e-6:  # but for rounding it is zero otherwise, as a bias in front of a batch norm
            test.assertLess(far(ours[name], expected), max(gradients, 4 * far(theirs[name], expected)), name)
    for (name, x), y, z in zip(module.named_buffers(), double.buffers(), single.buffers()):
        test.assertLess(far(x, y), max(outputs, 4 * far(z, y)), name)
    return module
