# SPDX-License-Identifier: Apache-2.0
"""Translation of functional aten ops on sequences [N, C, L] and volumes [N, C, D, H, W].

A sequence is an image of height 1. A pool of a volume becomes a pool along each dimension. If
several elements of a window share the maximum, max pooling chooses the same element as PyTorch. A
convolution of a volume becomes a convolution of an image:

    depths k, k + stride, ...  for each k of the kernel  -->  channels [C, kernel]
    planes one below the other, with rows of zeros       -->  image [D H, W, C kernel]
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

from cgpipe.torch import images
from cgpipe.torch.graph import Value
from cgpipe.torch.layout import BATCH, Layout, count
from cgpipe.torch.moves import along, padded, strided
from cgpipe.torch.registry import need, new_axes, op
from cgpipe.torch.translator import Parameter, Translator, shape_of

__all__: List[str] = []


def _some(value: Any, rank: int) -> List[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * rank if len(values) == 1 else values


def _high(value: Any, first: int) -> Any:
    """Convert an argument for a sequence to the two numbers, height and width, that the image
    needs."""
    return value if isinstance(value, str) else [first, *_some(value, 1)]


# --- sequences ---


def _image(t: Translator, x: Any) -> Value:
    y = t.value(x)
    need(len(y.layout.dims) == 3, "sequences [N, C, L]")
    return y.with_layout(y.layout.unsqueeze(2))


def _sequence(y: Value) -> Value:
    return y.with_layout(y.layout.drop(2))


def _kernel(weight: Any) -> Parameter:
    need(isinstance(weight, Parameter) and len(weight.shape) == 3, "convolution of a parameter")
    return Parameter(weight.name, [*weight.shape[:2], 1, weight.shape[2]])


@op("conv1d")
def conv1d(t: Translator, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Value:
    return _sequence(images.conv2d(t, _image(t, x), _kernel(weight), bias, _high(stride, 1),
                                   _high(padding, 0), _high(dilation, 1), groups))


@op("conv_transpose1d")
def conv_transpose1d(t: Translator, x: Any, weight: Any, bias: Any = None, stride: Any = 1,
                     padding: Any = 0, output_padding: Any = 0, groups: int = 1,
                     dilation: Any = 1) -> Value:
    return _sequence(images.conv_transpose2d(
        t, _image(t, x), _kernel(weight), bias, _high(stride, 1), _high(padding, 0),
        _high(output_padding, 0), groups, _high(dilation, 1)))


@op("max_pool1d")
def max_pool1d(t: Translator, x: Any, kernel: Any, stride: Any = (), padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Value:
    return _sequence(images.max_pool2d(t, _image(t, x), _high(kernel, 1),
                                       _high(stride or kernel, 1), _high(padding, 0),
                                       _high(dilation, 1), ceil_mode))


@op("max_pool1d_with_indices")
def max_pool1d_with_indices(t: Translator, *arguments: Any) -> List[Any]:
    return [max_pool1d(t, *arguments), None]


@op("avg_pool1d")
def avg_pool1d(t: Translator, x: Any, kernel: Any, stride: Any = (), padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> Value:
    return _sequence(images.avg_pool2d(t, _image(t, x), _high(kernel, 1),
                                       _high(stride or kernel, 1), _high(padding, 0), ceil_mode,
                                       count_include_pad))


# --- volumes ---


@op("conv3d")
def conv3d(t: Translator, x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0,
           dilation: Any = 1, groups: int = 1) -> Value:
    need(isinstance(weight, Parameter) and len(weight.shape) == 5, "conv3d of a parameter")
    out, inner, *kernel = weight.shape
    stride, dilation = _some(stride, 3), _some(dilation, 3)
    sides = _sides(padding, kernel, dilation)
    sizes = [size for _, size in t.shape_of_result()[2:]]
    y = t.value(x)
    need(len(y.layout.dims) == 5, "volumes [N, C, D, H, W]")
    for i in (0, 1):
        y = padded(t, y, 2 + i, *sides[i])
    y = padded(t, y, 3, 0, -count(y.layout.dims[3]) % stride[1])
    y = _stacked(t, y, [(k * dilation[0], stride[0]) for k in range(kernel[0])], sizes[0])
    _, channels, taps, depth, high, wide = y.layout.dims
    number = t.graph.arrange(y, [[*depth, *high], wide, [*channels, *taps]])
    rows = sizes[0] * count(high) // stride[1]
    named = [t.parameter(Parameter(weight.name, [out, inner * kernel[0], *kernel[1:]]),
                         [*kernel[1:], inner * kernel[0], out], order=(3, 2, 0, 1))]
    if bias is not None:
        named.append(t.parameter(bias, [out], decays=False))
    below = max(0, dilation[1] * (kernel[1] - 1) + 1 - stride[1])
    attributes: Dict[str, Any] = {
        "size": out, "bias": bias is not None, "kernel": kernel[1:], "stride": stride[1:],
        "padding": [0, below, *sides[2]], **images.grouping(groups, dilation[1:])}
    z = t.graph.add("conv2d", [number], [rows, sizes[2], out], attributes, named)
    dims = [new_axes(n) for n in (out, sizes[0], rows // sizes[0], sizes[2])]
    made = Value(z, Layout([(BATCH,), *dims], [*dims[1], *dims[2], *dims[3], *dims[0]]))
    return t.part(made, 3, 0, sizes[1])


def _sides(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> List[List[int]]:
    """Return the numbers of zeros to insert before and after each dimension."""
    if isinstance(padding, str):
        need(padding in ("valid", "same"), "conv3d with padding in numbers")
        total = [d * (k - 1) if padding == "same" else 0 for d, k in zip(dilation, kernel)]
        return [[n // 2, n - n // 2] for n in total]
    return [[n, n] for n in _some(padding, 3)]


def _stacked(t: Translator, x: Value, places: Sequence[Any], number: int) -> Value:
    """Return the depths that each tap of the kernel reads, [N, C, taps, D, H, W]. Each entry of
    ``places`` has the first depth and the step of a tap. A tap reads ``number`` depths."""
    parts = [strided(t, x, 2, first, first + (number - 1) * step + 1, step)
             for first, step in places]
    parts = [part.with_layout(part.layout.unsqueeze(2)) for part in parts]
    found: Value = parts[0] if len(parts) == 1 else t.apply("cat", parts, 2)
    return found


@op("max_pool3d")
def max_pool3d(t: Translator, x: Any, kernel: Any, stride: Any = (), padding: Any = 0,
               dilation: Any = 1, ceil_mode: bool = False) -> Value:
    need(_some(dilation, 3) == [1, 1, 1], "max_pool3d without dilation")
    return _pooled(t, x, "max_pool", {}, kernel, stride, padding, ceil_mode)


@op("max_pool3d_with_indices")
def max_pool3d_with_indices(t: Translator, *arguments: Any) -> List[Any]:
    return [max_pool3d(t, *arguments), None]


@op("avg_pool3d")
def avg_pool3d(t: Translator, x: Any, kernel: Any, stride: Any = (), padding: Any = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor: Any = None) -> Value:
    need(divisor is None, "avg_pool3d without divisor_override")
    y, sides = t.value(x), _some(padding, 3)
    if count_include_pad:
        for i, n in enumerate(sides):
            y = padded(t, y, 2 + i, n, n)
        sides = [0, 0, 0]
    return _pooled(t, y, "average_pool", {"global": False}, kernel, stride, sides, ceil_mode)


def _pooled(t: Translator, x: Any, name: str, attributes: Dict[str, Any], kernel: Any, stride: Any,
            padding: Any, ceil_mode: bool) -> Value:
    y, sizes = t.value(x), [size for _, size in _shape(t)[2:]]
    need(len(y.layout.dims) == 5, "volumes [N, C, D, H, W]")
    kernels, strides, sides = _some(kernel, 3), _some(stride or kernel, 3), _some(padding, 3)
    for i in (2, 1, 0):
        size, made = count(y.layout.dims[2 + i]), sizes[i]
        more = (made - 1) * strides[i] + kernels[i] - size - 2 * sides[i]
        after = sides[i] + (more if ceil_mode and more > 0 else 0)
        y = along(t, y, 2 + i, name, {**attributes, "kernel": [kernels[i], 1],
                                      "stride": [strides[i], 1],
                                      "padding": [sides[i], after, 0, 0]}, made)
    return y


def _shape(t: Translator) -> Any:
    """Return the shape of the node's result, or of its first result if there are several."""
    value = t.node.meta["val"]
    return shape_of((value[0] if isinstance(value, (list, tuple)) else value).shape)
