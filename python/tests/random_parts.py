# SPDX-License-Identifier: Apache-2.0
"""Parts of random modules: for each construct, functions that return a small module.

A part takes a tensor [N, *shape] and returns another tensor. The name of a construct says what its
parts test. A rank is the number of dimensions of a sample: 1 for rows [C], 2 for sequences [T, C],
3 for images [C, H, W]."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

__all__ = ["ALL", "IMAGES", "PARTS", "ROWS", "Fn", "mix", "parameter", "part", "with_layers"]

#: Each entry has the construct's name, its ranks, and a function of (pick, shape) that returns a
#: module.
PARTS = []
ALL, ROWS, IMAGES = (1, 2, 3), (1, 2), (3,)


class Fn(nn.Module):
    """Call ``function(module, ...)``. The other arguments become attributes of the module. Each
    instance has its own class, because modules of one class fall back to PyTorch together."""

    def __new__(cls, *_, **__):
        return super().__new__(type("Fn", (cls,), {}) if cls is Fn else cls)

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, *x):
        return self.function(self, *x)


def part(construct, ranks=ALL):
    """Decorate a function of (pick, shape): add it to PARTS."""
    def register(function):
        PARTS.append((construct, ranks, function))
        return function
    return register


def simple(construct, functions, ranks=ALL):
    """Add functions of (module, x) to PARTS. The module has layers ``a`` and ``b``, a parameter
    ``p`` as long as the last dimension, and a scalar parameter ``s``."""
    for function in functions:
        PARTS.append((construct, ranks, lambda pick, shape, function=function: with_layers(
            pick, shape, function)))


def mix(pick, shape):
    """Return a layer with parameters; its result has the shape of its input."""
    if len(shape) == 3:
        kernel = pick.choice([1, 3])
        return nn.Conv2d(shape[0], shape[0], kernel, padding=kernel // 2, bias=pick.random() < 0.7)
    return nn.Linear(shape[-1], shape[-1], bias=pick.random() < 0.7)


def parameter(*shape):
    return nn.Parameter(0.5 * torch.randn(*shape))


def with_layers(pick, shape, function):
    return Fn(function, a=mix(pick, shape), b=mix(pick, shape), p=parameter(shape[-1]),
              s=nn.Parameter(torch.tensor(0.7)))


def no_grad(function):
    """Return a function that calls ``function`` under torch.no_grad()."""
    def call(m, x):
        with torch.no_grad():
            return function(m, x)
    return call


# --- gradients that stop ---

def nested_modes(m, x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = m.a(x)
    return z * y


simple("detach", [
    lambda m, x: m.a(x) * x.detach(),
    lambda m, x: x + (torch.tanh(x) - x).detach(),
    lambda m, x: m.b(m.a(x).detach()) + m.a(x),
    lambda m, x: m.a(x) + x.data,
    lambda m, x: m.a(x.detach()),
])
simple("no_grad", [
    lambda m, x: m.b(x) + no_grad(lambda m, x: m.a(x) * 2)(m, x),
    lambda m, x: x * no_grad(lambda m, x: torch.sigmoid(m.a(x)))(m, x) + m.p,
    nested_modes,
    lambda m, x: torch.no_grad()(m.a)(x) + m.b(x),
])


@part("frozen")
def frozen(pick, shape):
    module = with_layers(pick, shape, lambda m, x: m.b(m.a(x)) * m.s)
    for p in pick.choice([[module.a.weight], [module.s], list(module.a.parameters()),
                          list(module.parameters())]):
        p.requires_grad_(False)
    return module


# --- custom backwards, hooks ---

class Reverse(torch.autograd.Function):
    """The identity; its backward multiplies the gradient by -0.5."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return -0.5 * gradient


class Square(torch.autograd.Function):
    """A weighted square; its backward clips the gradient."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * x * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return (gradient * weight * 2 * x).clamp(-1, 1), None


def tensor_hook(m, x):
    y = m.a(x)
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 0.5)
    return y


simple("autograd.Function", [
    lambda m, x: m.a(Reverse.apply(x)),
    lambda m, x: Reverse.apply(m.a(x)) + x,
    lambda m, x: Square.apply(torch.tanh(m.a(x)), m.s),
])
simple("tensor hook", [tensor_hook])


@part("layer hook")
def layer_hook(pick, shape):
    module = with_layers(pick, shape, lambda m, x: m.b(torch.tanh(m.a(x))))
    pick.choice([
        lambda a: a.register_forward_hook(lambda m, x, y: y * 2),
        lambda a: a.register_forward_pre_hook(lambda m, x: (x[0] * 0.5,)),
        lambda a: a.register_full_backward_hook(
            lambda m, i, o: None if i[0] is None else (i[0] * 3,)),
        lambda a: a.register_full_backward_pre_hook(lambda m, o: (o[0] * 3,)),
        lambda a: a.register_forward_hook(lambda m, x, k, y: y + 1, with_kwargs=True),
    ])(pick.choice([module.a, module]))
    return module


# --- writes ---

def written(write):
    def call(m, x):
        y = m.a(x)
        write(m, y, x)
        return y * 1
    return call


def assign(y, at, value):
    y[at] = value


def write_without_gradient(m, y, x):
    with torch.no_grad():
        y.mul_(2.0)


def base_of_a_view(m, x):
    y = m.a(x)
    view = y.flatten(1)
    y.add_(m.b(x))
    return (view * 2).view_as(y)


def view_of_a_view(m, x):
    y = m.a(x) * 1
    y[..., :2][:, :1].mul_(m.s)
    return y


simple("write through a view", [
    written(lambda m, y, x: y.view(y.shape[0], -1).mul_(2.0)),
    written(lambda m, y, x: y.flatten(1)[:, :2].add_(1.0)),
    written(lambda m, y, x: y.unsqueeze(1).relu_()),
    written(lambda m, y, x: y.transpose(0, -1).sigmoid_()),
    written(lambda m, y, x: assign(y, (..., slice(1, None)), m.b(x)[..., :-1])),
    written(lambda m, y, x: assign(y, (..., 0), 0)),
    written(lambda m, y, x: assign(y, (..., slice(0, None, 2)), 1.5)),
    written(lambda m, y, x: assign(y, (slice(None), 0), x[:, 1])),
    written(lambda m, y, x: y.chunk(2, -1)[0].mul_(m.s)),
    written(lambda m, y, x: y[:, 1:].copy_(x[:, :-1])),
    written(lambda m, y, x: y.narrow(-1, 0, 1).fill_(0.5)),
    written(lambda m, y, x: y[:, -1].zero_()),
    base_of_a_view, view_of_a_view,
])
simple("write in place", [
    written(lambda m, y, x: y.add_(x, alpha=0.5)),
    written(lambda m, y, x: y.mul_(m.p)),
    written(lambda m, y, x: y.clamp_(-1, 1)),
    written(lambda m, y, x: y.sub_(1).div_(2)),
    written(lambda m, y, x: y.copy_(x)),
    lambda m, x: F.relu(m.a(x), inplace=True) + F.leaky_relu_(m.b(x), 0.1),
    lambda m, x: torch.zeros_like(x).add_(m.a(x)).mul_(2),
    lambda m, x: x.clone().mul_(m.a(x)),
])
simple("write without gradient", [
    written(write_without_gradient),
    written(lambda m, y, x: y.detach().mul_(0.5)),
    written(lambda m, y, x: y.data.add_(1.0)),
    written(lambda m, y, x: y.detach()[:, :1].zero_()),
])

# --- types ---

simple("cast", [
    lambda m, x: m.a(x).half().float(),
    lambda m, x: m.a(x).bfloat16().float() + x,
    lambda m, x: m.a(x).double().exp().float() * 0.1,
    lambda m, x: m.a(x).to(torch.float32) + x.float(),
    lambda m, x: m.a(x) + (x * 2).int().float(),
    lambda m, x: m.a(x) * (x > 0).float(),
    lambda m, x: m.a(x) * (x > 0),
    lambda m, x: m.a(x) + (x > 0.5).to(x.dtype) * m.s,
    lambda m, x: m.a(x) + x.long().type_as(x),
    lambda m, x: (m.a(x).double() * m.s.double()).to(x.dtype),
])


def autocast(m, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m.a(x)
    return y.float()


simple("autocast", [autocast])

# --- state ---


def counted(m, x):
    m.count = getattr(m, "count", 0) + 1
    return m.a(x) * m.count


def cached(m, x):
    m.cache = x.detach().mean()
    return m.a(x) + m.cache


def training_only(m, x):
    return m.a(x) * 2 if m.training else m.a(x)


def averaged(m, x):
    if m.training:
        m.average.mul_(0.9).add_(0.1 * x.detach().mean())
    return m.a(x) - m.average


def stepped(m, x):
    m.steps += 1
    return m.a(x) * (1 + 0.1 * m.steps)


def replaced_buffer(m, x):
    m.average = 0.5 * m.average + x.detach().mean()
    return m.a(x) + m.average


simple("attribute set by forward", [counted, cached])
simple("mode in forward", [training_only])


@part("buffer written by forward")
def buffers(pick, shape):
    function = pick.choice([averaged, stepped, replaced_buffer])
    module = Fn(function, a=mix(pick, shape), average=torch.tensor(0.5))
    module.register_buffer("steps", torch.tensor(0))
    return module


@part("buffer")
def constants(pick, shape):
    return Fn(pick.choice([lambda m, x: m.a(x) * m.mask, lambda m, x: m.a(x) + m.mask,
                           lambda m, x: m.a(x) * m.mask.abs().sqrt() - m.mask.mean(),
                           lambda m, x: torch.where(m.mask > 0, m.a(x), x)]),
              a=mix(pick, shape), mask=torch.randn(shape[-1]))


# --- control flow ---

def guarded(m, x):
    return m.a(x) if x.shape[0] % 2 == 0 else m.b(x)


def counting_samples(m, x):
    return m.a(x) / x.shape[0]


def more_samples(m, x):
    return m.a(x) * 2 if x.size(0) > 3 else m.a(x)


def on_data(m, x):
    return m.a(x) if float(x.detach().sum()) > 0 else m.b(x) * 2


def looping(m, x):
    y = m.a(x)
    while float(y.detach().abs().max()) > 1:
        y = y * 0.5
    return y


simple("samples in forward", [
    guarded, counting_samples, more_samples,
    lambda m, x: m.a(x) * (len(x) ** 0.5),
    lambda m, x: m.a(x) + torch.ones(x.shape[0], *[1] * (x.dim() - 1)),
    lambda m, x: m.a(x) + torch.arange(x.shape[0]).view(-1, *[1] * (x.dim() - 1)) * 0.1,
])
simple("branch on data", [on_data, looping])
simple("gradient mode in forward", [
    lambda m, x: m.a(x) * 2 if torch.is_grad_enabled() else m.a(x),
    lambda m, x: m.a(x) * 2 if x.requires_grad else m.b(x),
])
simple("checkpoint", [
    lambda m, x: checkpoint(lambda x: torch.tanh(m.a(x)), x, use_reentrant=False),
    lambda m, x: checkpoint(m.a, x, use_reentrant=True) + x,
])


@part("branch on attributes")
def flags(pick, shape):
    def forward(m, x):
        for layer in m.layers[:m.depth]:
            x = layer(x) if m.names["kind"] == "plain" else layer(x) + x
        return x
    module = Fn(forward, layers=nn.ModuleList([mix(pick, shape) for _ in range(3)]))
    module.depth = pick.randint(1, 3)
    module.names = {"kind": pick.choice(["plain", "residual"])}
    return module


simple("samples mix", [
    lambda m, x: m.a(x) - x.mean(0, keepdim=True),
    lambda m, x: m.a(x) / (1 + x.norm()),
    lambda m, x: m.a(x) + x.mean(),
    lambda m, x: m.a(x) * torch.softmax(x, 0),
    lambda m, x: m.a(x) + x.flip(0),
    lambda m, x: m.a(x) + x.mean(dim=[]),
    lambda m, x: m.a(x) + x.sum() * 0.01,
])

# --- constants made in forward ---

simple("constants", [
    lambda m, x: m.a(x) + torch.arange(x.shape[-1]) * 0.1,
    lambda m, x: m.a(x) * torch.linspace(0, 1, x.shape[-1]),
    lambda m, x: m.a(x) + torch.ones_like(x) - x.new_full(x.shape, 0.5),
    lambda m, x: m.a(x) * torch.tensor([1.0, -1.0])[1] + torch.zeros(x.shape[-1]),
    lambda m, x: m.a(x) @ torch.eye(x.shape[-1]).roll(1, 0),
    lambda m, x: m.a(x) + torch.full((x.shape[0], *[1] * (x.dim() - 1)), 0.25),
])

# --- elements ---

simple("activation", [
    lambda m, x: F.relu(m.a(x)), lambda m, x: F.gelu(m.a(x)), lambda m, x: F.silu(m.a(x)),
    lambda m, x: torch.tanh(m.a(x)), lambda m, x: torch.sigmoid(m.a(x)),
    lambda m, x: F.leaky_relu(m.a(x), 0.2), lambda m, x: F.gelu(m.a(x), approximate="tanh"),
])
simple("other activation", [lambda m, x, f=f: f(m.a(x)) for f in (
    F.softplus, F.elu, F.selu, F.celu, F.mish, F.hardswish, F.hardsigmoid, F.relu6, F.hardtanh,
    F.softsign, F.logsigmoid, F.tanhshrink, F.hardshrink, F.softshrink)] + [
    lambda m, x: F.prelu(m.a(x), m.s), lambda m, x: F.threshold(m.a(x), 0.1, 0.2),
    lambda m, x: F.glu(torch.cat([m.a(x), x], -1), -1), lambda m, x: torch.relu(m.a(x)) ** 2,
    lambda m, x: F.rrelu(m.a(x), 0.2, 0.2),
])
simple("arithmetic", [
    lambda m, x: torch.add(m.a(x), x, alpha=0.5), lambda m, x: torch.sub(m.a(x), x, alpha=2),
    lambda m, x: torch.rsub(m.a(x), x, alpha=2), lambda m, x: 1.5 - m.a(x),
    lambda m, x: torch.addcmul(x, m.a(x), x, value=0.3), lambda m, x: torch.lerp(m.a(x), x, 0.3),
    lambda m, x: m.a(x) / (x * x + 1), lambda m, x: 1 / (m.a(x) ** 2 + 1),
    lambda m, x: m.a(x) ** 3 - (-x), lambda m, x: m.a(x).square() * m.s - x.pow(2),
    lambda m, x: torch.addcdiv(m.a(x), x, x * x + 1), lambda m, x: m.a(x) / m.s,
    lambda m, x: (x.detach() * 4) // 1 + m.a(x), lambda m, x: torch.remainder(m.a(x), 1.0),
    lambda m, x: torch.div(m.a(x), 0.3, rounding_mode="floor") + x, lambda m, x: m.a(x) * 0 + x,
    lambda m, x: m.s * m.a(x) + m.s, lambda m, x: m.a(x) * m.s.exp() + m.p.tanh(),
])
simple("other elements", [
    lambda m, x: m.a(x).abs(), lambda m, x: m.a(x).exp() * 0.1, lambda m, x: (m.a(x) ** 2).log1p(),
    lambda m, x: m.a(x).clamp(-0.5, 0.5), lambda m, x: m.a(x).clamp(min=0),
    lambda m, x: m.a(x).sin(),
    lambda m, x: torch.maximum(m.a(x), x), lambda m, x: torch.minimum(m.a(x), x * 0.5),
    lambda m, x: torch.where(x > 0, m.a(x), x), lambda m, x: m.a(x).masked_fill(x < 0, 0.0),
    lambda m, x: (m.a(x) ** 2 + 1).sqrt(), lambda m, x: (m.a(x) ** 2 + 1).rsqrt(),
    lambda m, x: m.a(x).sign() + x, lambda m, x: m.a(x).erf(), lambda m, x: m.a(x).nan_to_num(),
    lambda m, x: torch.atan2(m.a(x), x * x + 1), lambda m, x: m.a(x).floor() + x,
    lambda m, x: m.a(x).round() * x, lambda m, x: torch.logit(torch.sigmoid(m.a(x)) * 0.8 + 0.1),
])

# --- reductions and order ---

simple("reduction", [
    lambda m, x: m.a(x) - x.mean(-1, keepdim=True), lambda m, x: m.a(x) - x.sum(-1, True) * 0.1,
    lambda m, x: m.a(x) / (x.std(-1, keepdim=True) + 1), lambda m, x: F.normalize(m.a(x), dim=-1),
    lambda m, x: m.a(x) - x.amax(-1, keepdim=True), lambda m, x: m.a(x) - x.max(-1, True).values,
    lambda m, x: m.a(x) + x.logsumexp(-1, keepdim=True),
    lambda m, x: m.a(x) * x.var(1, keepdim=True),
    lambda m, x: torch.softmax(m.a(x), -1), lambda m, x: torch.log_softmax(m.a(x), 1),
    lambda m, x: m.a(x) + x.flatten(1).mean(1).view(-1, *[1] * (x.dim() - 1)),
    lambda m, x: m.a(x) * torch.softmax(x, 1), lambda m, x: m.a(x) * x.prod(-1, keepdim=True),
    lambda m, x: m.a(x) + x.mean(list(range(1, x.dim())), keepdim=True),
    lambda m, x: m.a(x) + x.argmax(-1, keepdim=True) * 0.1, lambda m, x: F.softmin(m.a(x), -1),
])
simple("order", [
    lambda m, x: torch.cumsum(m.a(x), -1), lambda m, x: m.a(x).sort(-1).values,
    lambda m, x: m.a(x).flip(-1), lambda m, x: m.a(x).roll(1, -1), lambda m, x: m.a(x).roll(2, 1),
    lambda m, x: m.a(x).topk(2, -1).values, lambda m, x: m.a(x)[..., [1, 0]],
    lambda m, x: m.a(x).gather(-1, x.argsort(-1)),
    lambda m, x: m.a(x).index_select(-1, torch.tensor([1, 1, 0])),
    lambda m, x: torch.diff(m.a(x), dim=-1), lambda m, x: m.a(x).cummax(-1).values,
])

# --- indices, sizes and transforms ---


def put_chosen(m, x):
    y = m.a(x).clone()
    y[x > 0.5] = 0.25
    return y


def put_at(m, x):
    y = m.a(x) * 1
    y[..., [0, 2]] = x[..., [1, 0]]
    return y


simple("scatter", [
    put_chosen, put_at,
    lambda m, x: torch.zeros_like(x).scatter(-1, x.argsort(-1), m.a(x)),
    lambda m, x: x.scatter_add(-1, x.argsort(-1), m.a(x)),
    lambda m, x: m.a(x).index_add(-1, torch.tensor([0, 2]), x[..., :2]),
    lambda m, x: m.a(x).index_copy(-1, torch.tensor([2, 0]), x[..., :2]),
    lambda m, x: m.a(x).index_fill(-1, torch.tensor([1]), 0.5),
    lambda m, x: torch.take_along_dim(m.a(x), x.argmax(-1, keepdim=True), -1) * x,
])
simple("sizes that depend on values", [
    lambda m, x: torch.masked_select(m.a(x), x > -1e30).view(x.shape),
    lambda m, x: m.a(x) * (1 + 0.1 * (x > 0).nonzero().shape[0]),
])
simple("transforms", [
    lambda m, x: torch.func.vmap(m.a)(x.unsqueeze(1)).squeeze(1),
    lambda m, x: torch.func.functional_call(m.a, {"weight": m.a.weight * 2}, (x,)),
    lambda m, x: torch.fft.rfft(m.a(x)).real, lambda m, x: m.a(x) + torch.fft.fft(x).abs(),
])


@part("running statistics read")
def statistics(pick, shape):
    kind = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d}[len(shape)]
    wide = [-1, *[1] * (len(shape) - 1)]
    return Fn(pick.choice([lambda m, x: m.n(m.a(x)) + m.n.running_mean.view(wide),
                           lambda m, x: m.n(m.a(x)) * m.n.running_var.mean(),
                           lambda m, x: m.a(x) - m.n.running_mean.view(wide) + m.n(x)]),
              a=mix(pick, shape), n=kind(shape[0]))


# --- views, parts and copies ---

simple("view", [
    lambda m, x: m.a(x).flatten(1), lambda m, x: m.a(x).reshape(x.shape[0], -1),
    lambda m, x: m.a(x).unsqueeze(1).squeeze(1), lambda m, x: m.a(x).transpose(1, -1),
    lambda m, x: m.a(x).movedim(-1, 1).contiguous(),
    lambda m, x: m.a(x).view(-1, x.shape[-1]).view(x.shape),
    lambda m, x: m.a(x).unflatten(-1, (1, -1)).flatten(-2), lambda m, x: m.a(x).view(x.size()),
    lambda m, x: m.a(x).flatten().view_as(x), lambda m, x: m.a(x).mT.mT if x.dim() > 2 else m.a(x),
])
simple("slices", [
    lambda m, x: m.a(x)[..., 1:], lambda m, x: m.a(x)[..., :-1] * x[..., 1:],
    lambda m, x: m.a(x)[:, 1:] + x[:, :-1], lambda m, x: m.a(x)[..., ::2],
    lambda m, x: m.a(x)[:, 0:1] * x, lambda m, x: torch.cat([m.a(x)[..., -1:], x], -1),
    lambda m, x: torch.cat(m.a(x).chunk(2, 1)[::-1], 1),
    lambda m, x: sum(m.a(x).unbind(1)).unsqueeze(1) + x,
    lambda m, x: torch.stack([m.a(x), x], 1).flatten(1, 2) if x.dim() > 1 else x,
    lambda m, x: m.a(x).split([1, x.shape[-1] - 1], -1)[1], lambda m, x: F.pad(m.a(x), (1, 2)),
    lambda m, x: F.pad(m.a(x), (1, 0), value=2.0),
    lambda m, x: m.a(x).select(1, -1).unsqueeze(1) * x,
    lambda m, x: F.pad(m.a(x), (-1, 1)), lambda m, x: m.a(x).tensor_split(2, -1)[0],
])
simple("expand and repeat", [
    lambda m, x: m.a(x)[:, :1].expand_as(x) + x,
    lambda m, x: m.a(x).repeat(1, 2, *[1] * (x.dim() - 2)),
    lambda m, x: m.a(x).repeat_interleave(2, -1), lambda m, x: torch.tile(m.a(x), (2,)),
    lambda m, x: m.a(x)[..., :1].expand(x.shape).clone().mul_(x),
    lambda m, x: m.a(x).unsqueeze(1).expand(-1, 2, *x.shape[1:]).flatten(1, 2),
    lambda m, x: m.a(x).unsqueeze(2).expand(x.shape[0], x.shape[1], 2, *x.shape[2:]).mean(2),
    lambda m, x: (m.a(x)[:, :1] - x).relu() + m.a(x)[..., -1:],
])

# --- parameters ---

simple("broadcast of parameters", [
    lambda m, x: m.a(x) * m.p, lambda m, x: m.a(x) + m.p, lambda m, x: m.p - m.a(x),
    lambda m, x: m.a(x) * m.s, lambda m, x: x * m.p + m.s, lambda m, x: m.p.expand_as(x) * m.a(x),
    lambda m, x: torch.cat([m.p[:1].expand(*x.shape[:-1], 1), m.a(x)], -1),
    lambda m, x: m.a(x) + m.p[:2].sum(), lambda m, x: m.a(x) * torch.outer(m.p, m.p)[0],
    lambda m, x: m.a(x) + m.p.view(1, -1), lambda m, x: m.a(x) * m.p.softmax(0),
    lambda m, x: m.a(x) + torch.stack([m.s, m.s * 2]).mean(),
    lambda m, x: m.p.expand(x.shape) + 0 * x,
    lambda m, x: m.a(x) + m.p.flip(0), lambda m, x: m.a(x) * m.p.repeat(2)[:x.shape[-1]],
])
simple("functional", [
    lambda m, x: x + F.linear(x, torch.outer(m.p, m.p), m.p),
    lambda m, x: x @ torch.outer(m.p, m.p).T,
    lambda m, x: torch.einsum("n...c,dc->n...d", x, torch.outer(m.p, m.p)),
    lambda m, x: F.layer_norm(m.a(x), x.shape[-1:], m.p, m.p),
    lambda m, x: x * m.p.square().sum().rsqrt(),
    lambda m, x: F.layer_norm(m.a(x), x.shape[-1:], m.p), lambda m, x: F.dropout(m.a(x), 0.0, True),
    lambda m, x: F.linear(x, F.normalize(torch.outer(m.p, m.p) + torch.eye(x.shape[-1]), dim=1)),
    lambda m, x: F.mse_loss(m.a(x), x, reduction="none"),
    lambda m, x: F.smooth_l1_loss(m.a(x), x, reduction="none"),
    lambda m, x: F.cosine_similarity(m.a(x), x, dim=-1).unsqueeze(-1) * x,
])


@part("tied weights")
def tied(pick, shape):
    module = with_layers(pick, shape, pick.choice([
        lambda m, x: m.b(torch.tanh(m.a(x))), lambda m, x: m.a(x) * m.b.weight.mean() + m.b(x)]))
    if type(module.a) is type(module.b) and module.a.weight.shape == module.b.weight.shape:
        module.b.weight = module.a.weight
    return module


simple("reuse", [lambda m, x: m.a(torch.tanh(m.a(x))), lambda m, x: m.a(x) + m.a(x * 2),
                 lambda m, x: m.b(m.a(x)) - m.b(x)])
simple("unused result", [lambda m, x: (m.a(x), m.b(x))[1], lambda m, x: (m.b(x) + m.p, m.a(x))[1],
                         lambda m, x: m.a(x) + 0 * m.b(x).detach(), lambda m, x: m.a(x)])


@part("parametrization", ROWS)
def parametrized(pick, shape):
    layer = nn.Linear(shape[-1], shape[-1])
    return pick.choice([nn.utils.parametrizations.weight_norm,
                        nn.utils.parametrizations.spectral_norm,
                        nn.utils.parametrizations.orthogonal])(layer)


@part("nn.Bilinear", ROWS)
def bilinear(pick, shape):
    size = shape[-1]
    return Fn(lambda m, x: m.c(m.a(x), x), a=mix(pick, shape), c=nn.Bilinear(size, size, size))
