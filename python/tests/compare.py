# SPDX-License-Identifier: Apache-2.0
"""Compare a captured module with the same module in PyTorch, in float64. Norms over few values
amplify small differences, so PyTorch's own float32 results may exceed the bound. In that case, the
bound becomes four times the difference between PyTorch's float32 and float64 results. This
difference is the largest of 16 runs, because a single run may have unusually small errors. In all
runs after the first, inputs and parameters are changed by rounding errors."""

import copy

import torch

from cgpipe.torch.runtime import Options, Runtime

OUTPUTS, GRADIENTS = 1e-5, 1e-4
DRAWS = 16


def far(got, expected):
    """Return the largest difference relative to the largest element."""
    want = expected.detach().double()
    return float((got.detach().double() - want).abs().max()) / (float(want.abs().max()) or 1.0)


def as_tuple(value):
    return value if isinstance(value, tuple) else (value,)


def run(module, inputs, weights):
    """Run a module forward and backward; return its outputs, and its gradients and buffers by
    name."""
    given = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = as_tuple(module(*given))
    sum((y * w.to(y.dtype)).sum() for y, w in zip(outputs, weights)).backward()
    found = {f"input {i}": x.grad for i, x in enumerate(given) if x.is_floating_point()}
    return outputs, found


def nudge(tensor):
    """Return a copy of a float tensor with each element changed by at most one rounding error."""
    return (tensor * (1 + torch.randint(-1, 2, tensor.shape) * 2.0 ** -23)
            if tensor.is_floating_point() else tensor)


def nudged(module):
    """Return a copy of a module with each parameter changed by at most one rounding error."""
    copied = copy.deepcopy(module)
    with torch.no_grad():
        for p in copied.parameters():
            p.copy_(nudge(p))
    return copied


class Step:
    """The results of a module's forward and backward: outputs, and gradients and running statistics
    by name."""

    def __init__(self, net, owner, inputs, weights):
        outputs, found = run(net, inputs, weights)
        found.update((name, p.grad) for name, p in owner.named_parameters())
        self.outputs, self.gradients, self.states = outputs, found, dict(owner.named_buffers())


def compare(test, module, *inputs, chunks=1, devices=("cpu",), outputs=OUTPUTS,
            gradients=GRADIENTS):
    """Check the outputs, gradients of parameters and inputs, and running statistics of a step.
    Return the captured module."""
    original, double = copy.deepcopy(module), copy.deepcopy(module).double()
    with torch.no_grad():
        weights = [torch.randn(y.shape) for y in as_tuple(copy.deepcopy(module)(*inputs))]
    ours = Step(Runtime(module, Options(chunks=chunks, devices=list(devices))), module, inputs,
                weights)
    exact = Step(double, double, [x.double() if x.is_floating_point() else x for x in inputs],
                 weights)
    theirs = []

    def check(kind, key, bound):
        def off(step):
            return far(getattr(step, kind)[key], getattr(exact, kind)[key])

        got = off(ours)
        for i in range(DRAWS):
            if got < bound:
                return
            if i == len(theirs):
                net = nudged(original) if i else copy.deepcopy(original)
                theirs.append(Step(net, net, [nudge(x) for x in inputs] if i else inputs, weights))
            bound = max(bound, 4 * off(theirs[i]))
        test.assertLess(got, bound, key)

    test.assertEqual([y.shape for y in ours.outputs], [y.shape for y in exact.outputs])
    for i in range(len(exact.outputs)):
        check("outputs", i, outputs)
    for name, expected in exact.gradients.items():
        test.assertIsNotNone(ours.gradients[name], name)
        # Skip gradients that are zero except for rounding, like the gradient of a bias before a
        # batch norm.
        if float(expected.abs().max()) > 1e-6:
            check("gradients", name, gradients)
    for name in exact.states:
        check("states", name, outputs)
    return module
