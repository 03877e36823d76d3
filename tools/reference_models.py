#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/reference_models.json: PyTorch's results for small ResNets, AmoebaNets and
U-Nets.

    apt-get install -y python3-torch                   # Debian 12: PyTorch 1.13
    /usr/bin/python3 tools/reference_models.py [FILE]  # default: tests/data/reference_models.json

The networks are defined independently of cgpipe, with PyTorch's functions, from the papers and the
tables of torchgpipe's models. Only the order of the parameters is the same as in cgpipe: the order
of their first use. Nothing is random. Weights, images and labels are functions of an index (hash:
reference_numbers.py), u = hash(p, i) / 2^32 - 0.5, rounded to float32:

    parameter p, element i, convolutions as [height, width, in, out], linear maps as [out, in]
        weights of convolutions and linear maps    u 2 sqrt(6 / fan_in),
                                                   fan_in = product of all dimensions but out
        weights of norms                           1 + u / 2
        biases                                     u / 2
    images [N, S, S, 3], element i                 4 u of hash(9000, i)
    labels [N]                                     hash(9001, i) mod classes
    masks [N, S, S, 1]                             1 if u of hash(9001, i) < 0, else 0

Each run is one step in training mode from these weights. The mini-batch is split into micro-batches
of ceil(N / chunks) samples. Each micro-batch is normalised by itself; the loss is the mean over the
mini-batch. Running statistics are updated after every micro-batch (momentum 0.1) or, if `deferred`,
once, by the statistics of all inputs of the norm. The step is followed by a forward in evaluation
mode for the same images.

The file has two numbers for each tensor t of gradients, statistics or outputs. The first is its
norm. The second is its product with a fixed vector, sum t_i u_i, where u_i is u of hash(7000, i).
If elements are in a wrong order, the product is close only by chance. Both numbers are computed in
float64. `float32` has the largest differences between PyTorch's float32 results and these values.
Differences of losses and norms are relative to the value, and differences of products are relative
to norm sqrt(1 / 12). A norm counts as at least a thousandth of the largest norm, because some
gradients are zero except for rounding (a shift before a linear map and a norm). One thread is
used."""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F

EPS, MOMENTUM = 1e-5, 0.1


def hashes(p, count):
    # Import reference_numbers only in this function, because it needs numpy, and
    # bench/images_torch.py must work without numpy.
    from reference_numbers import hashes as of
    return of(p, count)


def uniform(p, count):
    return hashes(p, count).astype("float64") / 2.0**32 - 0.5


class Net:
    """Parameters and running statistics, in the order of their first use."""

    def __init__(self, dtype):
        self.dtype, self.parameters, self.statistics = dtype, [], []
        self.training, self.deferred = True, None

    def run(self, function, x):
        self.parameter_at = self.norm_at = 0
        return function(self, x)

    def parameter(self, shape, kind):
        p = self.parameter_at
        self.parameter_at += 1
        if p == len(self.parameters):
            u = uniform(p, math.prod(shape))
            outputs = shape[-1] if len(shape) == 4 else shape[0]
            values = (u * (2 * math.sqrt(6 / (u.size // outputs))) if kind == "weight"
                      else u / 2 + (kind == "norm"))
            values = torch.from_numpy(values.astype("float32").reshape(shape))
            self.parameters.append(values.to(self.dtype).requires_grad_())
        return self.parameters[p]

    def conv(self, x, out, kernel, stride=(1, 1), padding=(0, 0)):
        weight = self.parameter([*kernel, x.shape[1], out], "weight")
        return F.conv2d(x, weight.permute(3, 2, 0, 1), None, stride, padding)

    def batch_norm(self, x):
        c, k = x.shape[1], self.norm_at
        weight, bias = self.parameter([c], "norm"), self.parameter([c], "bias")
        self.norm_at += 1
        if k == len(self.statistics):
            self.statistics.append((torch.zeros(c, dtype=self.dtype),
                                    torch.ones(c, dtype=self.dtype)))
        if self.training and self.deferred is not None:
            self.deferred.setdefault(k, []).append(x.detach())
            return F.batch_norm(x, None, None, weight, bias, True, MOMENTUM, EPS)
        return F.batch_norm(x, *self.statistics[k], weight, bias, self.training, MOMENTUM, EPS)

    def linear(self, x, out):
        weight = self.parameter([out, x.shape[1]], "weight")
        return F.linear(x, weight, self.parameter([out], "bias"))

    def follow_deferred(self):
        for k, inputs in self.deferred.items():
            x = torch.cat(inputs).transpose(0, 1).flatten(1)
            for statistic, seen in zip(self.statistics[k], (x.mean(1), x.var(1))):
                statistic += MOMENTUM * (seen - statistic)


# --- ResNet ---

def resnet_block(net, x, width, stride, bottleneck):
    out = 4 * width if bottleneck else width
    if bottleneck:
        y = F.relu(net.batch_norm(net.conv(x, width, (1, 1))))
        y = F.relu(net.batch_norm(net.conv(y, width, (3, 3), (stride, stride), (1, 1))))
        y = net.batch_norm(net.conv(y, out, (1, 1)))
    else:
        y = F.relu(net.batch_norm(net.conv(x, width, (3, 3), (stride, stride), (1, 1))))
        y = net.batch_norm(net.conv(y, out, (3, 3), (1, 1), (1, 1)))
    if stride != 1 or x.shape[1] != out:
        x = net.batch_norm(net.conv(x, out, (1, 1), (stride, stride)))
    return F.relu(x + y)


def resnet(blocks, width, classes, bottleneck, small):
    def forward(net, x):
        if small:
            x = F.relu(net.batch_norm(net.conv(x, width, (3, 3), (1, 1), (1, 1))))
        else:
            x = F.relu(net.batch_norm(net.conv(x, width, (7, 7), (2, 2), (3, 3))))
            x = F.max_pool2d(x, 3, 2, 1)
        for group, count in enumerate(blocks):
            for block in range(count):
                x = resnet_block(net, x, width << group, 2 if group > 0 and block == 0 else 1,
                                 bottleneck)
        return net.linear(x.mean((2, 3)), classes)
    return forward


# --- AmoebaNet-D ---

def relu_conv_norm(net, x, out, kernel=(1, 1), stride=(1, 1), padding=(0, 0)):
    return net.batch_norm(net.conv(F.relu(x), out, kernel, stride, padding))


def factorized_reduce(net, x, out, padded):
    x = F.relu(x)
    even = net.conv(x, out // 2, (1, 1), (2, 2))
    shifted = x[:, :, 1:, 1:]
    odd = net.conv(F.pad(shifted, (0, 1, 0, 1)) if padded else shifted, out // 2, (1, 1), (2, 2))
    return net.batch_norm(torch.cat([even, odd], 1))


def operation(net, kind, x, stride, largest, old):
    c = x.shape[1]
    if kind == "none":
        return x
    if kind == "conv1":
        return relu_conv_norm(net, x, c, stride=(stride, stride))
    if kind in ("conv3", "conv7"):
        x = relu_conv_norm(net, x, c // 4)
        if kind == "conv3":
            x = relu_conv_norm(net, x, c // 4, (3, 3), (stride, stride), (1, 1))
        else:
            x = relu_conv_norm(net, x, c // 4, (1, 7), (1, stride), (0, 3))
            x = relu_conv_norm(net, x, c // 4, (7, 1), (stride, 1), (3, 0))
        return relu_conv_norm(net, x, c)
    if kind == "max2":
        x = F.max_pool2d(x, 2, stride)
    elif kind == "max3" and largest:
        x = F.max_pool2d(x, 3, stride, 1)
    else:
        x = F.avg_pool2d(x, 3, stride, 1, count_include_pad=False)
    return net.batch_norm(net.conv(x, c, (1, 1))) if old else x


NORMAL = ("conv1 1, max3 1, none 1, conv7 0, conv1 0, conv7 0, max3 2, none 2, avg3 1, conv1 5",
          (0, 3, 4, 6))
REDUCTION = ("max2 0, max3 0, none 2, conv3 1, conv7 2, max3 2, none 3, max2 1, avg3 2, conv1 3",
             (4, 5, 6))
OLD_NORMAL = ("max3 0, conv1 0, none 2, max3 2, none 0, conv7 1, conv1 1, conv7 1, avg3 0, conv1 3",
              (4, 5, 6))
OLD_REDUCTION = ("max2 1, max3 1, conv3 0, none 2, conv7 2, max3 2, avg3 2, conv1 3, none 3, "
                 "max2 0", (4, 5, 6))


def cell(net, s1, s2, c, reduction, reduced, largest, old):
    def bring_s2():
        if reduced:
            return factorized_reduce(net, s2, c, not old)
        return s2 if s2.shape[1] == c else relu_conv_norm(net, s2, c)

    if old:
        states = [bring_s2(), relu_conv_norm(net, s1, c)]
    else:
        states = [relu_conv_norm(net, s1, c), bring_s2()]
    operations, result = ((OLD_REDUCTION if reduction else OLD_NORMAL) if old else
                          (REDUCTION if reduction else NORMAL))
    ends = []
    for text in operations.split(", "):
        kind, index = text.split()
        stride = 2 if reduction and int(index) < 2 else 1
        ends.append(operation(net, kind, states[int(index)], stride, largest, old))
        if len(ends) == 2:
            states.append(ends[0] + ends[1])
            ends = []
    return torch.cat([states[i] for i in result], 1), s1


def amoebanetd(normal_cells, filters, classes, largest=False, old=False):
    cells = ([True, True] + [False] * normal_cells + [True] + [False] * normal_cells + [True]
             + [False] * normal_cells)

    def forward(net, x):
        c = filters // 4
        s1 = s2 = net.batch_norm(net.conv(F.relu(x), c, (3, 3), (2, 2), (1, 1)))
        reduced = False
        for reduction in cells:
            c *= 2 if reduction else 1
            s1, s2 = cell(net, s1, s2, c, reduction, reduced, largest, old)
            reduced = reduction
        return net.linear(s1.mean((2, 3)), classes)
    return forward


# --- U-Net ---

def stack(net, x, middle, out, convs):
    for k in range(convs):
        x = net.conv(x, out if k == convs - 1 else middle, (3, 3), (1, 1), (1, 1))
        x = F.leaky_relu(F.instance_norm(x, eps=EPS), 0.01)
    return x


def unet(convs, channels, depth):
    def forward(net, x):
        skips = []
        for i in range(depth):
            x = stack(net, x, channels << i, channels << i, convs)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = stack(net, x, channels << depth, channels << (depth - 1), convs)
        for i in reversed(range(depth)):
            x = F.interpolate(x, scale_factor=2)
            missing = [skips[i].shape[k] - x.shape[k] for k in (3, 2)]
            x = torch.cat([F.pad(x, (0, missing[0], 0, missing[1])), skips[i]], 1)
            x = stack(net, x, (channels << i) // 2, (channels << i) // 2, convs)
        return net.conv(x, 1, (1, 1))
    return forward


# --- runs ---

# Images are few and small. In larger runs, rounding to float32 could move the input of some ReLU
# across zero, and its gradient would change.
MODELS = [
    {"text": "resnet:depth=20,width=8", "classes": 10, "image": 32, "batch": 5,
     "runs": [(1, False), (3, False), (3, True)], "forward": resnet([3, 3, 3], 8, 10, False, True)},
    {"text": "resnet:depth=50,width=4,classes=7,image=32", "classes": 7, "image": 32, "batch": 12,
     "runs": [(1, False), (2, True)], "forward": resnet([3, 4, 6, 3], 4, 7, True, False)},
    {"text": "amoebanetd:L=3,D=16,classes=10,image=64", "classes": 10, "image": 64, "batch": 8,
     "runs": [(1, False), (2, True)], "forward": amoebanetd(1, 16, 10)},
    {"text": "amoebanetd:L=3,D=16,classes=10,image=32,maxpool=max", "classes": 10, "image": 32,
     "batch": 8, "runs": [(1, False)], "forward": amoebanetd(1, 16, 10, largest=True)},
    {"text": "amoebanetd:L=1,D=16,classes=10,image=32,old=1", "classes": 10, "image": 32,
     "batch": 8, "runs": [(1, False)], "forward": amoebanetd(1, 16, 10, old=True)},
    {"text": "unet:B=2,C=8,depth=2,image=21", "classes": 0, "image": 21, "batch": 3,
     "runs": [(1, False), (2, False)], "forward": unet(2, 8, 2)},
    {"text": "unet:B=1,C=4,depth=3,image=32", "classes": 0, "image": 32, "batch": 2,
     "runs": [(1, False)], "forward": unet(1, 4, 3)},
]


def tell(tensors):
    """Return norms and products of tensors, with elements in cgpipe's order."""
    told = {"norms": [], "products": []}
    for tensor in tensors:
        t = tensor.detach().double().contiguous().flatten()
        told["norms"].append(t.norm().item())
        told["products"].append((t @ torch.from_numpy(uniform(7000, t.numel()))).item())
    return told


def loss_of(y, targets, count):
    if y.dim() == 2:
        return F.cross_entropy(y, targets, reduction="sum") / count
    return F.binary_cross_entropy_with_logits(y, targets, reduction="sum") / count


def make_batch(model, dtype):
    n, side = model["batch"], model["image"]
    images = (4 * uniform(9000, n * side * side * 3)).astype("float32").reshape(n, side, side, 3)
    images = torch.from_numpy(images).to(dtype).permute(0, 3, 1, 2).contiguous()
    if model["classes"]:
        return images, torch.from_numpy(hashes(9001, n).astype("int64") % model["classes"])
    masks = (uniform(9001, n * side * side) < 0).reshape(n, 1, side, side)
    return images, torch.from_numpy(masks).to(dtype)


def step(model, chunks, deferred, dtype):
    net = Net(dtype)
    net.deferred = {} if deferred else None
    images, targets = make_batch(model, dtype)
    size = -(-model["batch"] // chunks)
    loss = 0.0
    for x, t in zip(images.split(size), targets.split(size)):
        part = loss_of(net.run(model["forward"], x), t, targets.numel())
        part.backward()
        loss += part.item()
    if deferred:
        net.follow_deferred()
    net.training = False
    with torch.no_grad():
        output = net.run(model["forward"], images)
    if output.dim() == 4:
        output = output.permute(0, 2, 3, 1)
    return {"loss": loss, "gradients": tell([p.grad for p in net.parameters]),
            "statistics": tell([s for pair in net.statistics for s in pair]),
            "output": tell([output])}


def differences(single, double):
    """Return the largest difference of each kind, as defined at the top."""
    result = {"loss": abs(single["loss"] - double["loss"]) / abs(double["loss"])}
    for kind in ("gradients", "statistics", "output"):
        (norms, products), (ours, our_products) = (told[kind].values() for told in (double, single))
        result[kind] = 0.0
        for i, norm in enumerate(norms):
            far = max(abs(ours[i] - norm), math.sqrt(12) * abs(our_products[i] - products[i]))
            result[kind] = max(result[kind], far / max(norm, max(norms) / 1000))
    return result


def short(value):
    """Round to eight digits, enough to compare with float32."""
    if isinstance(value, dict):
        return {key: short(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [short(entry) for entry in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, "..", "tests", "data",
                                                              "reference_models.json")
    torch.set_num_threads(1)
    result = {"about": "made by tools/reference_models.py, which has the formulas",
              "torch": torch.__version__, "models": []}
    for model in MODELS:
        runs = []
        for chunks, deferred in model["runs"]:
            single, double = (step(model, chunks, deferred, dtype)
                              for dtype in (torch.float32, torch.float64))
            far = differences(single, double)
            runs.append({"chunks": chunks, "deferred": deferred, "float32": far, **double})
            print(f"{model['text']}, {chunks} chunks{', deferred' if deferred else ''}: "
                  f"{len(double['gradients']['norms'])} parameters, "
                  f"loss {double['loss']:.6f}; float32 differs by",
                  ", ".join(f"{k} {v:.1e}" for k, v in far.items()))
        result["models"].append({"text": model["text"], "batch": model["batch"], "runs": runs})
    with open(path, "w", encoding="ascii") as file:
        file.write(json.dumps(short(result), separators=(",", ":"))
                   .replace('{"text"', '\n{"text"').replace('{"chunks"', '\n{"chunks"'))
        file.write("\n")


if __name__ == "__main__":
    main()
