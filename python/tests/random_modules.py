# SPDX-License-Identifier: Apache-2.0
"""Random modules, composed of the parts of random_parts.py and random_layers.py; and random changes
that a test makes to a module after a step."""

import copy

import torch
from random_layers import ALL, FIRST, LAST, PARTS, VOCABULARY, Fn, mix
from torch import nn

__all__ = ["CHANGES", "Drawn", "draw"]


class Drawn:
    """A random module with its inputs.

    module      an nn.Sequential that takes a tensor, or a tuple of several tensors
    kinds       the kind of each input: "float", "ids", "mask" or "keep"
    shapes      the shape of a sample of each input
    constructs  the names of the constructs that the module contains
    """

    def __init__(self, pick):
        self.pick, self.constructs = pick, []
        self.kinds, self.shapes, layers = self._first()
        self.module = nn.Sequential(*layers)
        for _ in range(pick.randint(1, 4) - len(layers)):
            if not self._append(self._block(self.shape(), 0)):
                break
        if not layers and not len(self.module):
            self._append(mix(pick, self.shapes[0]))
        if pick.random() < 0.25:
            name, function = pick.choice(LAST)
            if self._append(Fn(function, a=mix(pick, self.shape()))):
                self.constructs.append(name)

    def _first(self):
        pick = self.pick
        if pick.random() < 0.25:
            construct, kinds, make = pick.choice(FIRST)
            self.constructs.append(construct)
            shapes = [(3, 4) if kind == "float" else (3,) for kind in kinds]
            first = make(pick)
            return kinds, shapes, [first if len(kinds) == 1 else
                                   Fn(lambda m, inputs: m.first(*inputs), first=first)]
        rank = pick.choice([1, 1, 2, 2, 3, 3])
        shape = {1: (pick.randint(3, 8),), 2: (pick.randint(3, 5), pick.choice([3, 4, 6])),
                 3: (pick.choice([2, 4]), pick.randint(4, 7), pick.randint(4, 7))}[rank]
        return ["float"], [shape], []

    # --- inputs and shapes ---

    def inputs(self, samples):
        """Return inputs with this number of samples."""
        found = []
        for kind, shape in zip(self.kinds, self.shapes):
            x = torch.randn(samples, *shape)
            if kind == "ids":
                x = torch.randint(0, VOCABULARY, (samples, *shape))
            elif kind != "float":
                x = torch.rand(samples, *shape) < 0.7
                x[:, 0] = kind == "keep"  # attention to no key gives NaN
                x = x if kind == "mask" else x.float()
            found.append(x)
        return found[0] if len(found) == 1 else tuple(found)

    def shape(self):
        """Return the shape of one sample of the module's result."""
        return tuple(self._call(self.module, self.inputs(4)).shape[1:])

    def _call(self, module, x):
        with torch.random.fork_rng(), torch.enable_grad():
            return copy.deepcopy(module)(x)

    def _append(self, part):
        """Append a part if the module's result is then finite, not too large, and has shape [N,
        ...] with at least two features. Return whether the part was appended."""
        longer = nn.Sequential(*self.module, part)
        try:
            for samples in (4, 5):
                y = self._call(longer, self.inputs(samples))
                for x in y if isinstance(y, tuple) else [y]:
                    good = x.shape[:1] == (samples,) and 1 < x.dim() < 5 and x[0].numel() < 600
                    if not good or not bool(torch.isfinite(x.float()).all()) or x.shape[-1] < 2:
                        return False
        except (RuntimeError, IndexError):  # the part refuses this shape
            return False
        if isinstance(y, torch.Tensor) and (min(y.shape[1:]) < 2 or y.shape[-1] < 3):
            return False
        self.module = longer
        return True

    # --- parts ---

    def _block(self, shape, depth):
        pick, kind = self.pick, self.pick.random()
        if depth < 2 and kind < 0.12:
            parts = [self._block(shape, depth + 1)]
            follow = self._result(parts[0], shape)
            return nn.Sequential(*parts, *([self._block(follow, depth + 1)] if follow else []))
        if depth < 2 and kind < 0.3:
            inner = self._block(shape, depth + 1)
            if self._result(inner, shape) == shape:
                return pick.choice([
                    lambda: Fn(lambda m, x: x + m.f(x), f=inner),
                    lambda: Fn(lambda m, x: m.f(m.f(x)), f=inner),
                    lambda: Fn(lambda m, x: torch.cat([m.f(x), m.g(x)], 1), f=inner,
                               g=mix(pick, shape)),
                    lambda: Fn(lambda m, x: m.g(x) * torch.sigmoid(m.f(x)), f=inner,
                               g=mix(pick, shape)),
                    lambda: nn.Sequential(inner, inner)])()
            return inner
        return self._part(shape)

    def _part(self, shape):
        """Return a random part. With probability 2/3 its construct suits all ranks; otherwise the
        construct is only for some ranks. Constructs of one kind have equal chances."""
        pick = self.pick
        found = {True: {}, False: {}}
        for construct, ranks, make in PARTS:
            if len(shape) in ranks:
                found[ranks == ALL].setdefault(construct, []).append(make)
        for _ in range(20):
            own = found[pick.random() < 0.67]
            construct = pick.choice(sorted(own))
            part = pick.choice(own[construct])(pick, shape)
            if self._result(part, shape) is not None:
                self.constructs.append(construct)
                return part
        return mix(pick, shape)

    def _result(self, part, shape):
        try:
            return tuple(self._call(part, torch.randn(4, *shape)).shape[1:])
        except (RuntimeError, IndexError):
            return None


# --- changes after the first step ---

def _children(pick, module, kinds):
    return [(path, child) for path, child in module.named_modules()
            if "." in path and isinstance(child, kinds)]


def _mode(pick, module):
    found = _children(pick, module, nn.Module)
    if not found:
        return None
    path, mode = pick.choice(found)[0], pick.random() < 0.5
    return lambda m: m.get_submodule(path).train(mode)


def _freeze(pick, module):
    found = [name for name, _ in module.named_parameters()]
    if len(found) < 2:
        return None
    name = pick.choice(found)
    flag = not module.get_parameter(name).requires_grad
    return lambda m: m.get_parameter(name).requires_grad_(flag)


def _write_buffer(pick, module):
    found = [name for name, b in module.named_buffers() if b.is_floating_point() and b.numel() > 1]
    if not found:
        return None
    name = pick.choice(found)
    return lambda m: m.get_buffer(name).mul_(0.5)


def _replace_buffer(pick, module):
    found = [name for name, b in module.named_buffers()
             if "." in name and b.is_floating_point() and b.numel() > 1]
    if not found:
        return None
    path, _, key = pick.choice(found).rpartition(".")

    def change(m):
        owner = m.get_submodule(path)
        setattr(owner, key, getattr(owner, key) * 0.5)
    return change


def _attribute(pick, module):
    found = [(path, key) for path, child in module.named_modules()
             for key in ("eps", "negative_slope", "depth", "momentum") if type(
                 child.__dict__.get(key)) in (int, float)]
    if not found:
        return None
    path, key = pick.choice(found)
    value = 1 if key == "depth" else 0.03
    return lambda m: setattr(m.get_submodule(path), key, value)


def _hook(pick, module):
    found = _children(pick, module, (nn.Linear, nn.Conv2d, Fn))
    if not found:
        return None
    path = pick.choice(found)[0]
    return lambda m: m.get_submodule(path).register_forward_hook(lambda m, x, y: y * 2)


def _submodule(pick, module):
    found = _children(pick, module, nn.Linear)
    found = [(path, child) for path, child in found if type(child) is nn.Linear
             and not hasattr(child, "parametrizations")]
    if not found:
        return None
    path, child = pick.choice(found)
    new = nn.Linear(child.in_features, child.out_features, child.bias is not None)
    parent, _, key = path.rpartition(".")
    return lambda m: setattr(m.get_submodule(parent), key, copy.deepcopy(new))


def _weights(pick, module):
    def rebind(m):
        for p in m.parameters():
            p.data = p.data * 0.9

    def write(m):
        for p in m.parameters():
            p.data.mul_(0.9)

    def load(m):
        state = {key: value * 0.9 if value.is_floating_point() else value
                 for key, value in m.state_dict().items()}
        m.load_state_dict(state)
    return pick.choice([rebind, write, load])


#: Functions of (pick, module). Each returns a change, which is a function of a module, or None if
#: this module cannot change in that way.
CHANGES = {"mode": _mode, "requires_grad": _freeze, "values of a buffer": _write_buffer,
           "another buffer": _replace_buffer, "attribute": _attribute, "hook": _hook,
           "submodule": _submodule, "weights": _weights}


def draw(pick):
    """Return a random module."""
    while True:
        drawn = Drawn(pick)
        if any(p.requires_grad for p in drawn.module.parameters()):
            return drawn
