# SPDX-License-Identifier: Apache-2.0
"""Parts of random modules: norms, attention, images, and the first and last parts of modules with
several inputs and outputs."""

import torch
from random_parts import ALL, IMAGES, PARTS, ROWS, Fn, mix, parameter, part, with_layers
from torch import nn
from torch.nn import functional as F

__all__ = ["ALL", "FIRST", "LAST", "PARTS", "VOCABULARY", "Fn", "mix"]

#: Integer inputs are numbers from 0 to VOCABULARY - 1.
VOCABULARY = 11

# --- norms ---

@part("norm", ROWS)
def norm_of_rows(pick, shape):
    return nn.Sequential(mix(pick, shape), pick.choice([
        nn.LayerNorm(shape[-1]), nn.LayerNorm(shape[-1], elementwise_affine=False),
        nn.LayerNorm(shape), nn.RMSNorm(shape[-1]), nn.LayerNorm(shape[-1], bias=False),
        nn.RMSNorm(shape[-1], elementwise_affine=False), nn.LayerNorm(shape[-1], eps=0.1)]))


@part("norm", IMAGES)
def norm_of_images(pick, shape):
    c = shape[0]
    return nn.Sequential(mix(pick, shape), pick.choice([
        nn.GroupNorm(1, c), nn.GroupNorm(c, c, affine=False), nn.InstanceNorm2d(c),
        nn.InstanceNorm2d(c, affine=True), nn.LayerNorm(shape), nn.GroupNorm(1, c, affine=False),
        nn.LayerNorm(shape[1:], elementwise_affine=False), nn.LocalResponseNorm(2),
        nn.InstanceNorm2d(c, track_running_stats=True)]))


@part("batch norm")
def batch_norm(pick, shape):
    kind = {1: nn.BatchNorm1d, 2: nn.BatchNorm1d, 3: nn.BatchNorm2d}[len(shape)]
    norm = kind(shape[0], **pick.choice([{}, {"affine": False}, {"momentum": None},
                                         {"momentum": 0.3},
                                         {"track_running_stats": False}, {"eps": 0.1}]))
    return nn.Sequential(mix(pick, shape), norm)


@part("batch norm in evaluation")
def fixed_norm(pick, shape):
    module = batch_norm(pick, shape)
    for name, buffer in module.named_buffers():
        if "var" in name or "mean" in name:
            buffer.uniform_(0.5, 1.5)
    module[1].eval()
    if pick.random() < 0.3:
        module[1].requires_grad_(False)
    module[1].train = lambda mode=True: module[1]  # detection models freeze norms this way
    return module


@part("dropout 0")
def dropout(pick, shape):
    kinds = [nn.Dropout(0.0), nn.Dropout(0), nn.AlphaDropout(0.0), nn.Dropout1d(0.0)]
    kinds = [*kinds[:2], nn.Dropout2d(0.0)] if len(shape) == 3 else kinds[:3]
    return nn.Sequential(mix(pick, shape), pick.choice(kinds))


# --- attention ---

def heads(pick, size):
    return pick.choice([h for h in (1, 2, 3, 4) if size % h == 0])


@part("nn.MultiheadAttention", (2,))
def multihead(pick, shape):
    function = pick.choice([
        lambda m, x: m.a(x, x, x, need_weights=False)[0], lambda m, x: m.a(x, x, x)[0] + x,
        lambda m, x: m.a(x, x * 2, m.b(x), need_weights=False)[0],
        lambda m, x: m.a(x, x, x, attn_mask=m.causal, is_causal=True, need_weights=False)[0],
        lambda m, x: m.a(x, x, x, attn_mask=m.causal)[0],
        lambda m, x: m.a(x, x, x, attn_mask=m.causal, need_weights=False)[0],
        lambda m, x: m.a(x, x, x, average_attn_weights=False)[1].sum(1) @ x,
        lambda m, x: m.a(x, x, x, key_padding_mask=(x[..., 0] > 1.5), need_weights=False)[0],
        lambda m, x: m.a(x[:, :1], x, x, need_weights=False)[0] + x])
    options = pick.choice([{}, {}, {"bias": False}, {"add_zero_attn": True}, {"add_bias_kv": True},
                           {"kdim": shape[1], "vdim": shape[1]}])
    causal = pick.choice([torch.full((shape[0], shape[0]), float("-inf")).triu(1),
                          torch.ones(shape[0], shape[0]).triu(1).bool()])
    return Fn(function, a=nn.MultiheadAttention(shape[1], heads(pick, shape[1]), batch_first=True,
                                                **options), b=mix(pick, shape), causal=causal)


def split_heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


@part("attention", (2,))
def attention(pick, shape):
    h = heads(pick, shape[1])

    def by_hand(m, x):
        q, k, v = (split_heads(y, h) for y in (m.a(x), m.b(x), x))
        scores = q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5
        return (m.mask(scores, x).softmax(-1) @ v).transpose(1, 2).flatten(2)

    def fused(m, x):
        q, k, v = (split_heads(y, h) for y in (m.a(x), m.b(x), x))
        return F.scaled_dot_product_attention(q, k, v, **m.options(x)).transpose(1, 2).flatten(2)
    module = Fn(pick.choice([by_hand, fused]), a=mix(pick, shape), b=mix(pick, shape))
    t = shape[0]
    module.mask = pick.choice([
        lambda s, x: s, lambda s, x: s.masked_fill(torch.ones(t, t).triu(1).bool(), float("-inf")),
        lambda s, x: s + torch.linspace(0, 1, t), lambda s, x: s + torch.ones(t, t).triu(1) * -1e9,
        lambda s, x: s.masked_fill((x[:, None, None, :, 0] > 1.5), -1e9),
        lambda s, x: torch.where(torch.ones(t, t).tril().bool(), s, -1e9)])
    module.options = pick.choice([
        lambda x: {}, lambda x: {"is_causal": True}, lambda x: {"scale": 0.3},
        lambda x: {"attn_mask": torch.ones(t, t).tril().bool()},
        lambda x: {"attn_mask": torch.linspace(0, 1, t)},
        lambda x: {"attn_mask": (x[:, None, None, :, 0] < 1.5)}])
    return module


@part("nn.Transformer layers", (2,))
def transformer(pick, shape):
    kind = pick.choice([nn.TransformerEncoderLayer, nn.TransformerEncoderLayer,
                        nn.TransformerDecoderLayer])
    layer = kind(shape[1], heads(pick, shape[1]), 8, 0.0, batch_first=True,
                 norm_first=pick.random() < 0.5, activation=pick.choice(["relu", "gelu"]))
    if kind is nn.TransformerDecoderLayer:
        return Fn(lambda m, x: m.a(x, x * 0.5), a=layer)
    causal = nn.Transformer.generate_square_subsequent_mask(shape[0])
    return Fn(pick.choice([lambda m, x: m.a(x),
    lambda m, x: m.a(x, src_mask=m.causal, is_causal=True),
                           lambda m, x: m.a(x, src_key_padding_mask=x[..., 0] > 1.5)]),
              a=layer, causal=causal)


@part("recurrent", (2,))
def recurrent(pick, shape):
    kind = pick.choice([nn.LSTM, nn.GRU, nn.RNN])
    if pick.random() < 0.3:
        cell = nn.GRUCell(shape[1], shape[1])
        return Fn(lambda m, x: torch.stack([m.c(x[:, 0], m.c(x[:, 1])), x[:, 0]], 1), c=cell)
    return Fn(pick.choice([lambda m, x: m.a(x)[0],
                           lambda m, x: m.a(x.transpose(0, 1).transpose(0, 1) * 2)[0]]),
              a=kind(shape[1], pick.randint(2, 5), pick.randint(1, 2), batch_first=True,
                     bidirectional=pick.random() < 0.3))


@part("class tokens and positions", (2,))
def tokens(pick, shape):
    t, c = shape
    return Fn(pick.choice([
        lambda m, x: torch.cat([m.token.expand(x.shape[0], -1, -1), x], 1) + m.table[:, :t + 1],
        lambda m, x: x + m.table[:, :t], lambda m, x: x + m.rows(torch.arange(x.shape[1])),
        lambda m, x: x + m.rows.weight[:t], lambda m, x: m.a(x) + m.table[0, :t].unsqueeze(0),
        lambda m, x: torch.cat([x, m.token.repeat(x.shape[0], 1, 1)], 1)]),
        a=mix(pick, shape), token=parameter(1, 1, c), table=parameter(1, t + 2, c),
        rows=nn.Embedding(t + 2, c))


# --- images ---

@part("convolution", IMAGES)
def convolution(pick, shape):
    c = shape[0]
    groups = pick.choice([g for g in (1, 1, c, 2) if c % g == 0])
    options = {"stride": pick.choice([1, 1, 2]), "dilation": pick.choice([1, 1, 2]),
               "groups": groups, "padding": pick.choice([0, 1, (0, 1), 2]),
               "bias": pick.random() < 0.6}
    if options["stride"] == 1 and pick.random() < 0.3:
        options["padding"] = "same"
    elif pick.random() < 0.2:
        options["padding_mode"] = pick.choice(["reflect", "circular", "replicate"])
    kernel = pick.choice([1, 3, (1, 3), 2])
    if options["padding"] == "same" or min(shape[1:]) < 5:
        options["dilation"] = 1
    return nn.Conv2d(c, groups * pick.randint(1, 3), kernel, **options)


@part("transposed convolution", IMAGES)
def transposed(pick, shape):
    c = shape[0]
    stride = pick.choice([1, 2])
    groups = pick.choice([g for g in (1, 1, c, 2) if c % g == 0])
    return nn.ConvTranspose2d(c, groups * pick.randint(1, 2), pick.choice([2, 3]), stride,
                              groups=groups, output_padding=pick.choice([0, stride - 1]),
                              padding=pick.choice([0, 1]), dilation=pick.choice([1, 1, 2]))


@part("pool", IMAGES)
def pool(pick, shape):
    return nn.Sequential(mix(pick, shape), pick.choice([
        nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AvgPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(1),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.AvgPool2d(2, ceil_mode=True),
        nn.MaxPool2d(2, 1, dilation=2),
        nn.AvgPool2d(3, 1, 1, count_include_pad=False), nn.AdaptiveAvgPool2d((2, 1)),
        nn.LPPool2d(2, 2),
        nn.AdaptiveMaxPool2d(1), nn.AvgPool2d(3, 2, 1, True, False),
        nn.AvgPool2d(2, divisor_override=3)]))


@part("size of images", IMAGES)
def resized(pick, shape):
    return nn.Sequential(mix(pick, shape), pick.choice([
        nn.Upsample(scale_factor=2), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ZeroPad2d((1, 2, 0, 1)), nn.ReflectionPad2d(1), nn.ConstantPad2d(1, 0.5),
        nn.ReplicationPad2d(1), nn.Unfold(2), nn.ChannelShuffle(1), nn.Upsample(5, mode="bicubic"),
        nn.Upsample(scale_factor=1.7, mode="nearest-exact"),
        nn.PixelUnshuffle(2) if shape[1] % 2 == shape[2] % 2 == 0 else nn.Upsample(size=7),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)]))


@part("flattened images", IMAGES)
def flattened(pick, shape):
    return Fn(pick.choice([lambda m, x: m.a(x).flatten(2).transpose(1, 2),
    lambda m, x: m.a(x).flatten(2),
                           lambda m, x: m.a(x).mean((2, 3)),
                           lambda m, x: m.a(x).permute(0, 2, 3, 1).flatten(1, 2)]),
              a=mix(pick, shape))


@part("linear", ROWS)
def linear(pick, shape):
    return nn.Linear(shape[-1], pick.randint(2, 7), bias=pick.random() < 0.7)


@part("convolution of signals", (2,))
def signals(pick, shape):
    return pick.choice([nn.Conv1d(shape[0], 3, 2),
                        nn.Conv1d(shape[0], shape[0], 3, padding=1, groups=shape[0]),
                        nn.Sequential(nn.Conv1d(shape[0], 3, 1), nn.AvgPool1d(2)),
                        nn.Sequential(nn.Conv1d(shape[0], 2, 1), nn.MaxPool1d(2)),
                        nn.ConvTranspose1d(shape[0], 2, 2)])


@part("products", (2,))
def products(pick, shape):
    return with_layers(pick, shape, pick.choice([
        lambda m, x: m.a(x) @ x.transpose(1, 2) @ x, lambda m, x: torch.bmm(m.a(x), m.b(x).mT),
        lambda m, x: torch.einsum("ntc,nsc->nts", m.a(x), x), lambda m, x: torch.cdist(m.a(x), x),
        lambda m, x: torch.baddbmm(m.a(x) @ x.mT, m.a(x), x.mT, beta=0.5, alpha=2) @ x,
        lambda m, x: m.a(x).tril() + x,
        lambda m, x: (m.a(x).unsqueeze(-1) * x.unsqueeze(-2)).mean(-1),
        lambda m, x: torch.linalg.norm(m.a(x), dim=-1, keepdim=True) * x]))


# --- the first part, which takes the inputs ---

def embedded(pick, function, **options):
    return Fn(function, table=nn.Embedding(VOCABULARY, 4, **options), a=nn.Linear(4, 4))


#: Each entry has the construct's name, the kinds of the inputs ("float", "ids", "mask", "keep"),
#: and a function of ``pick`` that returns the part.
FIRST = [
    ("integer inputs", ["ids"], lambda pick: embedded(pick, pick.choice([
        lambda m, i: m.table(i), lambda m, i: m.table((i + 1) % VOCABULARY),
        lambda m, i: m.a(m.table(i)),
        lambda m, i: m.table(i) + m.table(torch.zeros_like(i)),
        lambda m, i: m.table(i) * (i > 2).unsqueeze(-1),
        lambda m, i: m.table((i + 2 ** 33) % VOCABULARY),
        lambda m, i: m.table(i) + i.float().mean(1)[:, None, None],
        lambda m, i: m.a(m.table(i.clamp(max=3))),
        lambda m, i: m.table(i) @ m.table.weight.T @ m.table.weight,
        lambda m, i: F.one_hot(i, VOCABULARY).float() @ m.table.weight,
        lambda m, i: m.table(i.flip(1)),
        lambda m, i: m.table(i).masked_fill((i == 0).unsqueeze(-1), 0.0),
        lambda m, i: m.table(i[:, 1:])]))),
    ("padding_idx", ["ids"], lambda pick: embedded(pick,
    lambda m, i: m.a(m.table(i)), padding_idx=pick.choice([0, 3, -1]))),
    ("embedding options", ["ids"], lambda pick: embedded(pick,
    lambda m, i: m.table(i), **pick.choice([
        {"scale_grad_by_freq": True}, {"max_norm": 1.0}, {"sparse": True}]))),
    ("mask as an input", ["float", "mask"], lambda pick: Fn(pick.choice([
        lambda m, x, k: m.a(x, x, x, key_padding_mask=k, need_weights=False)[0],
        lambda m, x, k: m.b(x).masked_fill(k.unsqueeze(-1), 0.0),
        lambda m, x, k: m.b(x) * ~k.unsqueeze(-1),
        lambda m, x, k: torch.where(k.unsqueeze(-1), x, m.b(x)),
        lambda m, x, k: m.b(x) * k.float().unsqueeze(-1)]),
        a=nn.MultiheadAttention(4, 2, batch_first=True), b=nn.Linear(4, 4))),
    ("mask as an input", ["float", "keep"], lambda pick: Fn(pick.choice([
        lambda m, x, k: m.b(x) * k.unsqueeze(-1),
        lambda m, x, k: (m.b(x) * k.unsqueeze(-1)).sum(1, True) / (k.sum(1).view(-1, 1, 1) + 1) + x,
        lambda m, x, k: F.scaled_dot_product_attention(
            m.b(x), x, x, attn_mask=((k - 1) * 1e9).unsqueeze(1))]),
        b=nn.Linear(4, 4))),
    ("several inputs", ["float", "float"], lambda pick: Fn(pick.choice([
        lambda m, x, y: m.b(x) + y, lambda m, x, y: m.b(x) * y,
        lambda m, x, y: torch.cat([x, m.b(y)], 1),
        lambda m, x, y: m.b(x) @ y.mT, lambda m, x, y: m.b(x) + y.detach(),
        lambda m, x, y: m.b(x)]), b=nn.Linear(4, 4))),
    ("several inputs", ["ids", "float"], lambda pick: embedded(pick,
    lambda m, i, x: m.a(m.table(i)) + x)),
]

#: Last parts. Each entry has the construct's name and a function of (module, x); the module has a
#: layer ``a`` that takes x.
LAST = [
    ("several outputs", lambda m, x: (m.a(x), x * 2)),
    ("several outputs", lambda m, x: (m.a(x), m.a(x).mean(-1))),
    ("output without gradient", lambda m, x: (m.a(x), x.detach() * 3)),
    ("one output twice", lambda m, x: (lambda y: (y, y))(m.a(x))),
    ("view as an output", lambda m, x: m.a(x).transpose(1, -1)),
    ("expanded output", lambda m, x: m.a(x)[:, :1].expand_as(x)),
    ("input as an output", lambda m, x: (x, m.a(x))),
]
